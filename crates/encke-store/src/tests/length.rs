//! The length of the log while messages come as fast as they can.

use super::*;

#[test]
fn the_log_has_its_limit_however_fast_messages_come() {
    const RINGS_BYTES: usize = 60_000;
    const SEGMENT_BYTES: usize = 20_000;
    const GROUP: usize = 5;
    let text = format!("\"{}\"", "x".repeat(800));
    for channels in [1, 40] {
        let disk = SimDisk::new(3);
        let settings = rules(1_000_000);
        let terms = StoreOptions {
            record_bytes: 2_000,
            memory_bytes: 20_000,
            segment_bytes: SEGMENT_BYTES as u64,
            step_bytes: 500,
            ..StoreOptions::new(&settings)
        };
        let mut life = open_with(&disk, &settings, at(0), terms).unwrap_or_else(|error| panic!("it starts: {error}"));
        life.room.bytes_max = RINGS_BYTES / life.histories.owners();
        let (mut longest, mut rings) = (0, 0);
        for number in 0..4_000 {
            life.publish(&format!("/{}", number % channels), &text);
            if number % GROUP == 0 {
                life.history_store.commit(life.now.ms, &life.histories);
                longest = longest.max(life.history_store.figures().bytes as usize);
                rings = rings.max(life.histories.bytes());
            }
        }
        assert!(life.history_store.answers().iter().all(|answer| answer.is_persisted));
        let Figures { compactions, .. } = life.history_store.figures();
        assert!(compactions > 10, "{channels} channels: {compactions} compactions");
        let bound = (2 * SEGMENT_BYTES).max(rings * 16 / 7) + rings * 9 / 7 + 2 * GROUP * 1_000;
        assert!(longest <= bound, "{channels} channels: {longest} bytes of {bound}");
        // So the limit is not far from what happens.
        assert!(longest > bound / 2, "{channels} channels: {longest} bytes of {bound}");
    }
}
