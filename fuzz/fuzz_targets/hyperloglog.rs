//! HyperLogLogs in any bytes behind a good header, sparse and dense: no panic, and what is sparse
//! and sound does as its dense form does. The first bytes are elements, and the longest sparse
//! value.

#![no_main]

use bobbin_store::hyperloglog::{
    HyperLogLog, HyperLogLogView, REGISTERS, RegisterEncoding, RegisterRank, cardinality,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[count, len_max, encoding], rest)) = data.split_first_chunk() else { return };
    let (elements, body) = rest.split_at(rest.len().min(usize::from(count)));
    let sparse_len_max = usize::from(len_max) * 16;
    let header = [b"HYLL", &[encoding & 1][..], &[0; 10], &[0x80]].concat();
    let mut bytes = [&header, body].concat();
    if encoding & 1 == 0 {
        bytes.resize(header.len() + REGISTERS * 6 / 8, encoding);
    }
    let view = HyperLogLogView::new(&bytes).expect("the header is good");
    view.describe_runs();
    let (mut value, mut dense) = (view.to_owned(), view.to_owned());
    // Others may be corrupt: whatever is done to them is an error or harmless.
    let is_sound = dense.make_dense().is_ok();
    assert_eq!(view.count().is_ok(), is_sound);
    let mut registers = [0; REGISTERS];
    assert_eq!(view.merge_into(&mut registers).is_ok(), is_sound);
    for element in elements.chunks(2).map(RegisterRank::of) {
        let is_raised = value.view().is_raised_by(element);
        let added = value.add(element, sparse_len_max);
        if is_sound {
            assert_eq!(added, is_raised);
            assert_eq!(added, dense.add(element, sparse_len_max));
            registers[element.register] = registers[element.register].max(element.rank);
        }
    }
    let mut merged = HyperLogLog::default();
    if is_sound {
        assert_eq!(value.view().count(), dense.view().count());
        assert_eq!(value.view().count(), Ok(cardinality(&registers)));
        let raised = merged.raise_all(&registers, encoding & 2 != 0, sparse_len_max);
        raised.expect("nothing is corrupt");
        assert_eq!(merged.view().count(), dense.view().count());
    } else {
        value.view().merge_into(&mut registers).unwrap_or(());
        let _ = value.raise_all(&registers, encoding & 2 != 0, sparse_len_max);
    }
    assert!(
        value.view().encoding() == RegisterEncoding::Sparse
            || HyperLogLogView::new(&value.into_bytes()).is_some()
    );
});
