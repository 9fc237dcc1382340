//! Manifests in any bytes: no panic, and what is read and written again is the same.

#![no_main]

use bobbin_server::persistence::aof::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    let names = manifest.base.iter().chain(&manifest.increments).chain(&manifest.history);
    assert!(names.clone().all(|part| !part.name.contains('/') && part.sequence > 0));
    if names.count() > 0 {
        let again = Manifest::parse(&manifest.text()).expect("what we write is good");
        assert_eq!(again.text(), manifest.text());
    }
});
