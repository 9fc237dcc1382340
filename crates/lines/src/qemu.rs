//! QEMU's interface for plugins, version 1: the part that is used, with types.

use std::ffi::{c_int, c_uint, c_void};

use crate::caches::InstructionMoves;

pub(crate) type PluginId = u64;
pub(crate) type MemoryInfo = u32;

/// A translated piece of code without jumps in it.
#[repr(C)]
pub(crate) struct TranslationBlock {
    _private: [u8; 0],
}

/// An instruction of a block.
#[repr(C)]
pub(crate) struct Instruction {
    _private: [u8; 0],
}

type Translated = extern "C" fn(PluginId, *mut TranslationBlock);
type Exited = extern "C" fn(PluginId, *mut c_void);
type Ran = extern "C" fn(c_uint, *mut c_void);
type Accessed = extern "C" fn(c_uint, MemoryInfo, u64, *mut c_void);

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, call: Translated);
    fn qemu_plugin_register_atexit_cb(id: PluginId, call: Exited, data: *mut c_void);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut TranslationBlock,
        call: Ran,
        registers: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        call: Accessed,
        registers: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(block: *const TranslationBlock) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const TranslationBlock, index: usize) -> *mut Instruction;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    fn qemu_plugin_start_code() -> u64;
}

/// The calls look at no register.
const NO_REGISTERS: c_int = 0;
const READS_AND_WRITES: c_int = 3;

/// `call` gets every block that is translated.
pub(crate) fn on_translation(id: PluginId, call: Translated) {
    // SAFETY: the id is the one that QEMU gave, and the function is there as long as the plugin.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, call) }
}

/// `call` is called when the program ends.
pub(crate) fn on_exit(id: PluginId, call: Exited) {
    // SAFETY: as above; the function makes nothing of its data.
    unsafe { qemu_plugin_register_atexit_cb(id, call, std::ptr::null_mut()) }
}

/// `call` gets `number` each time the block runs. For use while it is translated.
pub(crate) fn on_run(block: *mut TranslationBlock, call: Ran, number: usize) {
    let number = std::ptr::without_provenance_mut(number);
    // SAFETY: QEMU passes the number on and does not look at it.
    unsafe { qemu_plugin_register_vcpu_tb_exec_cb(block, call, NO_REGISTERS, number) }
}

/// `call` gets the place with each use of memory by the instruction.
pub(crate) fn on_access(
    instruction: *mut Instruction,
    call: Accessed,
    place: &'static InstructionMoves,
) {
    let place = std::ptr::from_ref(place).cast_mut().cast();
    // SAFETY: the instruction is one of the block that is being translated; QEMU passes the place
    // on and does not look at it.
    unsafe {
        qemu_plugin_register_vcpu_mem_cb(instruction, call, NO_REGISTERS, READS_AND_WRITES, place);
    }
}

/// The instructions of a block that is being translated, with their addresses.
pub(crate) fn instructions(
    block: *mut TranslationBlock,
) -> impl ExactSizeIterator<Item = (*mut Instruction, u64)> {
    // SAFETY: the caller has the block from QEMU, which keeps it while it translates it.
    let count = unsafe { qemu_plugin_tb_n_insns(block) };
    (0..count).map(move |index| {
        // SAFETY: `index` is less than the number of instructions in the block.
        let instruction = unsafe { qemu_plugin_tb_get_insn(block, index) };
        // SAFETY: it is an instruction of this block.
        (instruction, unsafe { qemu_plugin_insn_vaddr(instruction) })
    })
}

/// Whether an access writes.
pub(crate) fn is_store(info: MemoryInfo) -> bool {
    // SAFETY: any number may be asked for.
    unsafe { qemu_plugin_mem_is_store(info) }
}

/// Where the program's code begins in its own memory.
pub(crate) fn start_of_code() -> u64 {
    // SAFETY: it takes nothing and reads what was set when the program was loaded.
    unsafe { qemu_plugin_start_code() }
}
