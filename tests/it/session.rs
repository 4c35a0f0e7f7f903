//! Sessions on real servers.

use crate::support;
use pgdyno::session::{Failure, Param, Session, Statement};

#[test]
fn values_of_every_type_go_to_the_server_and_back() {
    let server = support::start("18", &[]);
    let mut session = Session::connect(&server.connect("postgres")).unwrap();
    session
        .prepare_all(&[
            "SELECT $1::int2, $2::int4, $3::int8, $4::numeric, $5::text, $6::timestamp, $7::text",
        ])
        .unwrap();
    session
        .block_on(async |session| {
            session.queue(
                Statement(0),
                &[
                    Param::Int2(-2),
                    Param::Int4(1 << 30),
                    Param::Int8(i64::MIN),
                    Param::Cents(-12_345_678_901),
                    Param::Text("häßlich"),
                    Param::Timestamp(-1),
                    Param::Null,
                ],
            );
            let mut reply = session.flush().await?;
            let row = reply.next_result()?.one()?;
            assert_eq!(row.int2(0)?, -2);
            assert_eq!(row.int4(1)?, 1 << 30);
            assert_eq!(row.int8(2)?, i64::MIN);
            assert_eq!(row.decimal(3, 2)?, -12_345_678_901);
            assert_eq!(row.text(4)?, "häßlich");
            assert_eq!(row.timestamp(5)?, -1);
            assert!(row.is_null(6)?);
            Ok(())
        })
        .unwrap();
}

#[test]
fn copy_stores_rows_and_a_dropped_copy_stores_none() {
    let server = support::start("18", &[]);
    let mut session = Session::connect(&server.connect("postgres")).unwrap();
    session.query("CREATE TEMP TABLE t (a int)").unwrap();
    let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
    copy.send(b"1\n2").unwrap();
    copy.send(b"\n3\n").unwrap();
    assert_eq!(copy.finish().unwrap(), 3);
    let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
    copy.send(b"4\n").unwrap();
    drop(copy);
    let count = session.query_value("SELECT count(*) FROM t").unwrap();
    assert_eq!(count.as_deref(), Some("3"));
    let Err(error) = session.copy_in("SELECT 1").map(|_| ()) else {
        panic!("SELECT is no COPY");
    };
    assert_eq!(error.failure, Failure::OtherSql);
}
