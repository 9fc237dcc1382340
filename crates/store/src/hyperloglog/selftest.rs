//! PFSELFTEST: checks that registers keep their values, that both forms agree, and that the
//! estimate is accurate enough. It does what Redis's test does, but in steps.

use super::{HyperLogLog, REGISTER_MAX, REGISTERS, RegisterRank, dense, raise_dense};

/// A test in progress.
pub struct SelfTest {
    random: u64,
    seed: u64,
    cycles: usize,
    added: u64,
    checkpoint: u64,
    dense: Vec<u8>,
    sparse: HyperLogLog,
    sparse_len_max: usize,
}

impl SelfTest {
    /// `seed` determines the registers and elements that are tried.
    pub fn new(seed: u64, sparse_len_max: usize) -> Self {
        Self {
            random: seed | 1,
            seed,
            cycles: 0,
            added: 0,
            checkpoint: 1,
            dense: empty_dense(),
            sparse: HyperLogLog::default(),
            sparse_len_max,
        }
    }

    /// Continues for some hundred microseconds. `false`: the test is complete. The error says what
    /// is wrong.
    pub fn step(&mut self) -> Result<bool, String> {
        if self.cycles < REGISTER_CYCLES {
            self.cycles += 1;
            self.check_registers()?;
            return Ok(true);
        }
        for _ in 0..ELEMENTS_A_STEP {
            if self.added == ELEMENTS {
                return Ok(false);
            }
            self.add()?;
        }
        Ok(true)
    }

    /// Fills all registers of a value and reads them.
    fn check_registers(&mut self) -> Result<(), String> {
        let mut registers = [0; REGISTERS];
        registers.iter_mut().for_each(|register| *register = self.draw() as u8 & REGISTER_MAX);
        let mut body = vec![0; REGISTERS / 4 * 3];
        for (register, &rank) in registers.iter().enumerate() {
            dense::raise(&mut body, RegisterRank { register, rank });
        }
        for (register, &rank) in registers.iter().enumerate() {
            let found = dense::register(&body, register);
            if found != rank {
                return Err(format!("Register {register} should be {rank} but is {found}"));
            }
        }
        Ok(())
    }

    /// Adds one element to both forms, and checks the estimate at powers of ten.
    fn add(&mut self) -> Result<(), String> {
        self.added += 1;
        let element = RegisterRank::of(&(self.added ^ self.seed).to_le_bytes());
        raise_dense(&mut self.dense, element);
        let corrupt = |_| "a sparse value became corrupt".to_owned();
        self.sparse.add(element, self.sparse_len_max).map_err(corrupt)?;
        if self.added < self.checkpoint {
            return Ok(());
        }
        let sparse = self.sparse.view();
        if (self.added as usize) < self.sparse_len_max / 2
            && sparse.encoding() != super::RegisterEncoding::Sparse
        {
            return Err("sparse encoding not used".to_owned());
        }
        let count = sparse.count().map_err(corrupt)?;
        if super::HyperLogLogView::new(&self.dense).map(super::HyperLogLogView::count)
            != Some(Ok(count))
        {
            return Err("dense/sparse disagree".to_owned());
        }
        let error = count.abs_diff(self.added);
        let error_max = match self.added {
            // Among so few, two may share a register.
            10 => 1,
            added => (6.0 * STANDARD_ERROR * added as f64).ceil() as u64,
        };
        if error > error_max {
            return Err(format!("Too big error. card:{} abserr:{error}", self.added));
        }
        self.checkpoint *= 10;
        Ok(())
    }

    /// The next number of a xorshift generator.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn empty_dense() -> Vec<u8> {
    let mut value = HyperLogLog::default();
    // An empty value is not corrupt.
    let _ = value.make_dense();
    value.into_bytes()
}

const REGISTER_CYCLES: usize = 1000;
const ELEMENTS: u64 = 10_000_000;
const ELEMENTS_A_STEP: usize = 10_000;
/// 1.04 / sqrt(REGISTERS)
const STANDARD_ERROR: f64 = 1.04 / 128.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_passes_as_far_as_a_test_may_take() {
        let mut test = SelfTest::new(7, 3000);
        test.cycles = REGISTER_CYCLES - 3;
        for _ in 0..30 {
            assert_eq!(test.step(), Ok(true));
        }
    }
}
