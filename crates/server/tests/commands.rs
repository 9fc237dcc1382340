//! Random sequences of commands against a model.

mod model;

use std::cell::RefCell;

use model::Bench;
use proptest::prelude::*;

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn replies_are_those_of_the_model(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        // A bench of its own after a failure: the one that failed is not empty.
        let mut bench = BENCH.take().unwrap_or_else(Bench::new);
        bench.run(&bytes);
        BENCH.replace(Some(bench));
    }
}
