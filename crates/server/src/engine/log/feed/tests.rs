use super::*;

fn read(feed: &Feed, reader: &FeedReader, bytes_max: u64) -> String {
    let mut text = Vec::new();
    feed.read(reader, bytes_max, |slice| text.extend_from_slice(&slice));
    String::from_utf8(text).unwrap()
}

fn publish(feed: &Feed, backlog_max: u64) {
    feed.publish(backlog_max, u64::MAX, |_| {});
}

#[test]
fn readers_get_what_is_published_from_their_offset_on() {
    let feed = Feed::default();
    assert!(feed.reader(0, None).is_none(), "it is off");
    feed.begin(10);
    let early = feed.reader(10, None).unwrap();
    feed.append(1, b"abc");
    assert_eq!(read(&feed, &early, 100), "", "not published");
    publish(&feed, 4);
    feed.append(2, b"def");
    assert_eq!(read(&feed, &early, 100), "abc");
    publish(&feed, 4);
    assert_eq!((feed.start_offset(), feed.published()), (10, 16), "a reader needs it");
    let late = feed.reader(12, None).unwrap();
    assert_eq!(read(&feed, &late, 100), "cdef");
    assert_eq!(read(&feed, &early, 100), "def");
    assert!(feed.reader(9, None).is_none() && feed.reader(17, None).is_none());
}

#[test]
fn the_backlog_is_kept_and_no_more_than_that() {
    let feed = Feed::default();
    feed.begin(0);
    let line = [b'x'; 1000];
    for number in 1..=1000 {
        feed.append(number, &line);
        publish(&feed, 200_000);
        let kept = feed.published() - feed.start_offset();
        assert!(kept >= 200_000.min(feed.published()) && kept <= 200_000 + CHUNK_BYTES as u64);
    }
    assert!(feed.reader(0, None).is_none());
    let reader = feed.reader(feed.start_offset(), None).unwrap();
    for number in 1001..=2000 {
        feed.append(number, &line);
        publish(&feed, 200_000);
    }
    assert!(feed.published() - feed.start_offset() >= 1_200_000 - CHUNK_BYTES as u64);
    assert!((900_000..=1_200_000).contains(&feed.beyond_backlog()));
    drop(reader);
    feed.trim(200_000);
    assert!(feed.published() - feed.start_offset() <= 200_000 + CHUNK_BYTES as u64);
    assert_eq!(feed.beyond_backlog(), 0);
}

#[test]
fn of_a_large_record_the_backlog_keeps_the_end() {
    let feed = Feed::default();
    feed.begin(0);
    feed.append(1, b"small");
    let large: Vec<u8> = (0..10_000_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
    feed.append(2, &large);
    publish(&feed, 200_000);
    let kept = feed.published() - feed.start_offset();
    assert!((200_000..=200_000 + CHUNK_BYTES as u64).contains(&kept), "{kept}");
    assert!(feed.memory() <= 200_000 + 2 * CHUNK_BYTES, "{}", feed.memory());
    let reader = feed.reader(feed.start_offset(), None).unwrap();
    let told = read(&feed, &reader, u64::MAX);
    assert!(large.ends_with(told.as_bytes()) && told.len() as u64 == kept);
    // A small backlog is kept in small pieces.
    feed.trim(16_384);
    feed.begin(0);
    feed.append(3, &large);
    publish(&feed, 16_384);
    let kept = feed.published() - feed.start_offset();
    assert!((16_384..=17_408).contains(&kept), "{kept}");
}

#[test]
fn a_reader_that_is_too_far_behind_is_let_go() {
    let feed = Feed::default();
    feed.begin(0);
    let [slow, quick] = [0, 0].map(|offset| feed.reader(offset, None).unwrap());
    for number in 1..=1000 {
        feed.append(number, &[b'x'; 1000]);
        feed.publish(0, 500_000, |_| {});
        assert_eq!(read(&feed, &quick, u64::MAX).len(), 1000);
        let (end, is_let_go) = (feed.published(), number >= 500);
        assert_eq!(slow.waiting_bytes(end), (!is_let_go).then_some(end));
        assert!(feed.beyond_backlog() < 500_000 && quick.waiting_bytes(end) == Some(0));
    }
    assert_eq!(read(&feed, &slow, u64::MAX), "", "it would be another part of the stream");
    assert!(feed.published() - feed.start_offset() <= CHUNK_BYTES as u64);
}

#[test]
fn records_are_found_by_number_or_a_later_one() {
    let feed = Feed::default();
    feed.begin(0);
    feed.append(3, b"abc");
    feed.append(5, b"de");
    let found = [1, 3, 4, 5, 6].map(|number| feed.offset_behind(number));
    assert_eq!(found, [Some(3), Some(3), Some(5), Some(5), None]);
    for number in 6..6 + MARKS_MAX as u64 {
        feed.append(number, b"f");
    }
    assert_eq!(feed.offset_behind(1), Some(6), "older ones count as the oldest known");
}

#[test]
fn records_before_the_beginning_end_where_it_begins() {
    let feed = Feed::default();
    feed.begin(10);
    assert_eq!(feed.offset_behind(5), None);
    feed.lead_from(7);
    feed.append(8, b"abc");
    feed.append(9, b"");
    let found = [5, 7, 8, 9, 10].map(|number| feed.offset_behind(number));
    assert_eq!(found, [Some(10), Some(10), Some(13), Some(13), None]);
}

/// The offsets of the next stream mean other bytes.
#[test]
fn a_reader_gets_nothing_of_the_next_stream() {
    for next in [0, 5, 100] {
        let feed = Feed::default();
        feed.begin(0);
        feed.append(1, b"0123456789");
        publish(&feed, u64::MAX);
        let kept = feed.reader(4, None).unwrap();
        let client = ClientInfo::new(7, -1, "test".into(), "test".into(), true, 0).into();
        let other = feed.reader(4, None).unwrap();
        assert!(feed.reader_from(&kept, &client).is_some_and(|own| own.offset() == 4));
        feed.begin(next);
        feed.append(2, b"of another history");
        publish(&feed, u64::MAX);
        assert!(kept.is_over() && feed.reader_from(&kept, &client).is_none());
        feed.read(&other, u64::MAX, |_| panic!("it reads the stream from {next} on"));
        assert!(!feed.reader(next, None).unwrap().is_over());
    }
}

#[test]
fn what_is_inserted_behind_a_record_does_not_move_its_end() {
    let feed = Feed::default();
    feed.begin(0);
    feed.append(3, b"abc");
    feed.insert(&[b"PING"]);
    feed.append(3, b"");
    assert_eq!(feed.offset_behind(3), Some(3));
    feed.append(4, b"d");
    assert_eq!((feed.offset_behind(3), feed.offset_behind(4)), (Some(3), Some(18)));
}

#[test]
fn nothing_is_inserted_into_the_stream_of_a_primary() {
    let feed = Feed::default();
    feed.begin(0);
    feed.relay(true);
    feed.append_relayed(b"abc");
    feed.insert(&[b"REPLCONF", b"GETACK", b"*"]);
    assert_eq!(feed.end_offset(), 3);
    feed.lead_from(7);
    feed.insert(&[b"PING"]);
    assert_eq!(feed.end_offset(), 17);
    feed.end();
    feed.insert(&[b"PING"]);
    assert_eq!(feed.end_offset(), 17, "nobody would get it");
}

#[test]
fn small_pieces_that_are_held_cost_little() {
    let feed = Feed::default();
    feed.begin(0);
    let reader = feed.reader(0, None).unwrap();
    let mut held = None;
    for number in 0..1000 {
        feed.append(number, &[b'x'; 40]);
        publish(&feed, u64::MAX);
        feed.read(&reader, u64::MAX, |slice| held = Some(slice));
    }
    assert_eq!(held.map(|slice| slice.len()), Some(40));
    assert!(feed.memory() < 16 * 40 * 1000, "{}", feed.memory());
}

/// Of the memory of a stream, only that of the backlog counts towards `maxmemory`.
#[test]
fn what_a_stopped_reader_keeps_is_beyond_the_backlog() {
    const BACKLOG: u64 = 1 << 20;
    for record_bytes in [130, 1046, 20_000, 100_000] {
        let feed = Feed::default();
        feed.begin(0);
        let stopped = feed.reader(0, None).unwrap();
        let mut output = Vec::new();
        let memory = || -> usize { feed.state.lock().chunks.iter().map(FeedChunk::memory).sum() };
        for number in 0..16 * BACKLOG / record_bytes {
            feed.append(number, &vec![b'x'; record_bytes as usize]);
            publish(&feed, BACKLOG);
            if number == 9 {
                feed.read(&stopped, 4 * record_bytes, |slice| output.push(slice));
            }
            let kept = memory();
            let bytes = (feed.end_offset() - feed.start_offset()) as usize;
            assert!(kept < bytes + bytes / 16 + 2 * CHUNK_BYTES, "{kept} for {bytes}");
            let counted = kept - feed.beyond_backlog().min(kept);
            let counted_max = BACKLOG as usize * 17 / 16 + CHUNK_BYTES;
            assert!(counted <= counted_max, "{counted} of {kept}, {record_bytes}");
        }
        // What the output has stays there, though the feed has dropped it.
        drop(stopped);
        feed.trim(BACKLOG);
        let in_output = output.iter().map(|slice| slice.len()).sum::<usize>();
        let beyond = feed.beyond_backlog();
        assert!((in_output..in_output + 3 * CHUNK_BYTES).contains(&beyond), "{beyond}");
        drop(output);
        feed.trim(BACKLOG);
        assert_eq!(feed.beyond_backlog(), 0);
        // A larger backlog has a use for all that is still there.
        feed.trim(BACKLOG / 2);
        feed.trim(2 * BACKLOG);
        assert_eq!(feed.beyond_backlog(), 0);
    }
}

#[test]
fn what_a_reader_holds_never_changes() {
    let feed = Feed::default();
    feed.begin(0);
    let reader = feed.reader(0, None).unwrap();
    let mut held = Vec::new();
    for number in 0..100 {
        feed.append(number, format!("{number:04}").as_bytes());
        publish(&feed, 0);
        if number % 3 == 0 {
            feed.read(&reader, u64::MAX, |slice| held.push(slice));
        }
    }
    let text: Vec<u8> = held.iter().flat_map(|slice| slice.to_vec()).collect();
    let expected: String = (0..100).map(|number| format!("{number:04}")).collect();
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}
