//! A file's bytes, item by item.

use bobbin_store::ValueRef;
use bobbin_store::value::StringRef;

use super::{AUX, DATABASE, END, EXPIRE_MS, FREQUENCY, FUNCTION, IDLE, SIZES};
use crate::crc64::crc64;
use crate::format::Format;
use crate::kind::ValueKind;
use crate::length::append_length;
use crate::value::append_collection;
use crate::value::string::{append_stored_string, append_string};

/// Writes into a buffer of its own, which the caller empties now and then by `flush`.
pub struct RdbWriter {
    buffer: Vec<u8>,
    format: Format,
    compress: bool,
    checksum: bool,
    crc: u64,
    written: u64,
}

/// What is written of how a key was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    Unknown,
    IdleSeconds(u32),
    Frequency(u8),
}

impl RdbWriter {
    /// Begins a file. `compress` is `rdbcompression`, `checksum` `rdbchecksum`.
    pub fn new(format: Format, compress: bool, checksum: bool) -> Self {
        let buffer = format.header().to_vec();
        Self { buffer, format, compress, checksum, crc: 0, written: 0 }
    }

    /// A fact about the file.
    pub fn aux(&mut self, name: &str, value: &[u8]) {
        self.buffer.push(AUX);
        append_string(name.as_bytes(), self.compress, &mut self.buffer);
        append_string(value, self.compress, &mut self.buffer);
    }

    /// The source of a library of functions.
    pub fn function(&mut self, source: &[u8]) {
        self.buffer.push(FUNCTION);
        append_string(source, self.compress, &mut self.buffer);
    }

    /// The keys that follow belong to this database.
    pub fn database(&mut self, number: u32) {
        self.buffer.push(DATABASE);
        append_length(number as usize, &mut self.buffer);
    }

    /// How many keys the database has, and how many of them expire.
    pub fn sizes(&mut self, keys: usize, expiring: usize) {
        self.buffer.push(SIZES);
        append_length(keys, &mut self.buffer);
        append_length(expiring, &mut self.buffer);
    }

    /// A key. `expire_ms` is a Unix time.
    pub fn key(&mut self, key: &[u8], value: ValueRef<'_>, expire_ms: Option<i64>, usage: Usage) {
        let buffer = &mut self.buffer;
        if let Some(ms) = expire_ms {
            buffer.push(EXPIRE_MS);
            buffer.extend_from_slice(&ms.to_le_bytes());
        }
        match usage {
            Usage::Unknown => {}
            Usage::IdleSeconds(seconds) => {
                buffer.push(IDLE);
                append_length(seconds as usize, buffer);
            }
            Usage::Frequency(frequency) => buffer.extend_from_slice(&[FREQUENCY, frequency]),
        }
        let string = match value {
            ValueRef::Bytes(bytes) => StringRef::Flat(bytes),
            ValueRef::Shared(shared) => StringRef::Flat(shared),
            ValueRef::Chunked(chunked) => StringRef::Chunked(chunked),
            ValueRef::Collection(collection) => {
                let form = self.format.form(collection);
                buffer.push(form as u8);
                append_string(key, self.compress, buffer);
                append_collection(collection, form, self.compress, buffer);
                return;
            }
        };
        buffer.push(ValueKind::String as u8);
        append_string(key, self.compress, buffer);
        append_stored_string(string, self.compress, buffer);
    }

    /// Ends the file.
    pub fn finish(&mut self) {
        self.buffer.push(END);
        self.sum();
        let checksum = if self.checksum { self.crc } else { 0 };
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        self.checksum = false;
    }

    /// Hands what was written to `write`, and forgets it if that succeeds.
    pub fn flush<E>(&mut self, write: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.sum();
        write(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT);
        Ok(())
    }

    /// Bytes that wait for `flush`.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes that were flushed.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn sum(&mut self) {
        if self.checksum {
            self.crc = crc64(self.crc, &self.buffer);
        }
    }
}

/// Room that the buffer keeps.
const BUFFER_KEPT: usize = 1 << 20;
