//! What a power cut leaves, and what faults do.

use super::*;

#[test]
fn only_what_was_forced_to_disk_is_certain() {
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let path = Path::new("directory/file");
    create_dir(Path::new("directory")).unwrap();
    let mut file = create_new(path, 0).unwrap();
    file.write_all(b"safe").unwrap();
    file.sync_data().unwrap();
    let images = |disk: &Disk| -> Vec<Option<Vec<u8>>> {
        let image = |seed: u64| {
            Disk::put_in(Some(
                disk.after_power_cut(&mut Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
            ));
            read(path).ok()
        };
        let images = (1..50).map(image).collect();
        Disk::put_in(Some(disk.clone()));
        images
    };
    let unnamed = images(&disk);
    assert!(unnamed.contains(&None) && unnamed.contains(&Some(b"safe".to_vec())));
    sync_directory(Path::new("directory")).unwrap();
    assert!(images(&disk).contains(&None), "the directory itself may be lost");
    sync_directory(Path::new(".")).unwrap();
    file.write_all(b"unsafe").unwrap();
    let named = images(&disk);
    assert!(named.iter().all(|bytes| bytes.as_ref().is_some_and(|b| b.starts_with(b"safe"))));
    assert!(named.contains(&Some(b"safe".to_vec())));
    assert!(named.contains(&Some(b"safeunsafe".to_vec())));
    // A new name and the old one: one of them, or both.
    rename(path, Path::new("directory/other")).unwrap();
    assert!(images(&disk).contains(&None) && !images(&disk).iter().all(Option::is_none));
    assert_eq!(read(Path::new("directory/other")).unwrap(), b"safeunsafe");
    Disk::put_in(None);
}

#[test]
fn a_disk_is_full_or_loses_what_it_took() {
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let path = Path::new("file");
    let mut file = create_new(path, 0).unwrap();
    sync_directory(Path::new(".")).unwrap();
    disk.set_faults(Faults { room: Some(3), failing_syncs: 1, ..Faults::default() });
    assert_eq!(file.write(b"abcd").unwrap(), 3);
    assert_eq!(file.write(b"d").unwrap_err().raw_os_error(), Some(28));
    assert!(create_new(Path::new("another"), 0).is_err());
    assert!(file.sync_data().is_err());
    disk.set_faults(Faults::default());
    file.write_all(b"d").unwrap();
    file.sync_data().unwrap();
    assert_eq!(read(path).unwrap(), b"abcd");
    Disk::put_in(Some(disk.after_power_cut(&mut Random::new(1))));
    assert_eq!(read(path).unwrap(), b"\0\0\0d");
    Disk::put_in(None);
}
