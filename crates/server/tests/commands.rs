//! Random sequences of commands against a model.

mod model;

use std::cell::RefCell;

use model::ModelBench;
use proptest::prelude::*;

thread_local! {
    static BENCH: RefCell<Option<ModelBench>> = const { RefCell::new(None) };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]
    #[test]
    fn replies_are_those_of_the_model(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        // A bench of its own after a failure: the one that failed is not empty.
        let mut bench = BENCH.take().unwrap_or_else(ModelBench::new);
        bench.run(&bytes);
        BENCH.replace(Some(bench));
    }
}
