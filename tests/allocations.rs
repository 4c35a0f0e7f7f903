//! A round trip allocates nothing once the buffers have grown. In a binary of its own, because the
//! allocator that counts is one for the process.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "it/support.rs"]
mod support;

use pgdyno::session::{Param, Session, SessionError, Statement};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
#[allow(unsafe_code, reason = "an allocator that counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One transaction with parameters and rows of several types.
async fn transaction(session: &mut Session) -> Result<i64, SessionError> {
    session.queue(Statement(0), &[]);
    session.queue(Statement(1), &[Param::Int4(100), Param::Text("some text")]);
    session.queue(
        Statement(2),
        &[Param::CentsArray(&[1, 20_000, -3]), Param::Null],
    );
    session.queue(Statement(3), &[]);
    let mut reply = session.flush().await?;
    reply.next_result()?;
    let mut sum = 0;
    for row in reply.next_result()?.rows() {
        sum += i64::from(row.int4(0)?) + i64::try_from(row.text(1)?.len()).unwrap_or(0);
    }
    sum += reply.next_result()?.one()?.decimal(0, 2)?;
    reply.next_result()?.expect_affected(0)?;
    Ok(sum)
}

#[test]
fn a_round_trip_allocates_nothing_after_the_first() {
    let server = support::start("18", &[]);
    let mut session = Session::connect(&server.connect("postgres")).unwrap();
    session
        .prepare_all(&[
            "BEGIN",
            "SELECT i::int4, $2::text FROM generate_series(1, $1) i",
            "SELECT sum(n)::numeric, $2::text FROM unnest($1::numeric[]) n",
            "COMMIT",
        ])
        .unwrap();
    let done = session.block_on(async |session| {
        let first = transaction(session).await?;
        let before = COUNT.get();
        assert!(before > 0, "the counter counts");
        for _ in 0..100 {
            assert_eq!(transaction(session).await?, first);
        }
        Ok((first, COUNT.get() - before))
    });
    assert_eq!(done.unwrap(), (5050 + 900 + 19_998, 0));
}
