//! Values in binary, as the server understands them.

use super::{VERSIONS, connect};
use crate::support;
use pgdyno::session::{Failure, Param, Session, SessionError, Statement};

/// Values at the edges of groups of four digits, of signs, and of the type.
const CENTS: [i64; 17] = [
    0,
    1,
    -1,
    99,
    100,
    -100,
    9_999,
    10_000,
    999_999,
    1_000_000,
    -1_000_001,
    123_456_789,
    99_999_999_999_999,
    -100_000_000_000_000,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

/// Runs one statement with one row.
fn row<T>(
    session: &mut Session,
    statement: u16,
    params: &[Param<'_>],
    read: impl FnOnce(&pgdyno::session::Row<'_>) -> Result<T, SessionError>,
) -> Result<T, SessionError> {
    session.block_on(async |session| {
        session.queue(Statement(statement), params);
        read(&session.flush().await?.next_result()?.one()?)
    })
}

/// A count of cents as PostgreSQL prints it.
fn decimal(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    let cents = cents.unsigned_abs();
    format!("{sign}{}.{:02}", cents / 100, cents % 100)
}

#[test]
fn scalars_go_to_the_server_and_back() {
    for version in VERSIONS {
        let server = support::start(version, &[]);
        let mut session = connect(&server);
        session
            .prepare_all(&[
                "SELECT $1::int2, $2::int4, $3::int8, $4::text, $5::timestamp, $6::text",
                "SELECT $1::int2::text, $2::int4::text, $3::int8::text, $5::timestamp::text
                 WHERE $4::text IS NOT NULL",
            ])
            .unwrap();
        for (int2, int4, int8, text, time, printed) in [
            (0, 0, 0, "", 0, "2000-01-01 00:00:00"),
            (
                i16::MIN,
                i32::MIN,
                i64::MIN,
                "häßlich 🐘",
                -1,
                "1999-12-31 23:59:59.999999",
            ),
            (
                i16::MAX,
                i32::MAX,
                i64::MAX,
                "a\n\\'b",
                789_004_800_000_000,
                "2025-01-01 00:00:00",
            ),
        ] {
            let params = [
                Param::Int2(int2),
                Param::Int4(int4),
                Param::Int8(int8),
                Param::Text(text),
                Param::Timestamp(time),
                Param::Null,
            ];
            row(&mut session, 0, &params, |row| {
                assert_eq!(row.int2(0)?, int2);
                assert_eq!(row.int4(1)?, int4);
                assert_eq!(row.int8(2)?, int8);
                assert_eq!(row.text(3)?, text);
                assert_eq!(row.timestamp(4)?, time);
                assert!(row.is_null(5)? && !row.is_null(0)?);
                assert_eq!(row.text(5).unwrap_err().failure, Failure::WrongResult);
                Ok(())
            })
            .unwrap();
            row(&mut session, 1, &params[..5], |row| {
                assert_eq!(row.text(0)?, int2.to_string());
                assert_eq!(row.text(1)?, int4.to_string());
                assert_eq!(row.text(2)?, int8.to_string());
                assert_eq!(row.text(3)?, printed);
                Ok(())
            })
            .unwrap();
        }
    }
}

#[test]
fn money_is_exact_in_both_directions() {
    for version in VERSIONS {
        let server = support::start(version, &[]);
        let mut session = connect(&server);
        session
            .prepare_all(&[
                "SELECT $1::numeric::text, $1::numeric, $1::numeric(30, 6), -($1::numeric)",
                "SELECT $1::text::numeric",
            ])
            .unwrap();
        for cents in CENTS {
            row(&mut session, 0, &[Param::Cents(cents)], |row| {
                assert_eq!(row.text(0)?, decimal(cents));
                assert_eq!(row.decimal(1, 2)?, cents);
                assert_eq!(row.decimal(2, 2)?, cents);
                if let Some(negated) = cents.checked_neg() {
                    assert_eq!(row.decimal(3, 2)?, negated);
                }
                Ok(())
            })
            .unwrap();
        }
        for (text, scale, expected) in [
            ("0.05", 2, Some(5)),
            ("1e3", 0, Some(1000)),
            ("0.1250", 3, Some(125)),
            ("0.00000001", 8, Some(1)),
            ("-0.0000", 2, Some(0)),
            ("12.345", 2, None),
            ("NaN", 2, None),
            ("1e30", 2, None),
            ("92233720368547758.08", 2, None),
            ("-92233720368547758.08", 2, Some(i64::MIN)),
        ] {
            let found = row(&mut session, 1, &[Param::Text(text)], |row| {
                row.decimal(0, scale)
            });
            match expected {
                Some(expected) => assert_eq!(found.unwrap(), expected, "{text}"),
                None => assert_eq!(found.unwrap_err().failure, Failure::WrongResult, "{text}"),
            }
        }
    }
}

#[test]
fn arrays_have_the_element_type_that_the_server_expects() {
    for version in VERSIONS {
        let server = support::start(version, &[]);
        let mut session = connect(&server);
        session
            .prepare_all(&[
                "SELECT $1::int2[]::text, $2::int4[]::text, $3::numeric[]::text, $4::text[]::text",
                "SELECT sum(i * n)::numeric, min(t) FROM unnest($1::int4[], $2::numeric[], $3::text[])
                 AS u (i, n, t)",
            ])
            .unwrap();
        for (params, printed) in [
            (
                [
                    Param::Int2Array(&[1, -2]),
                    Param::Int4Array(&[i32::MAX]),
                    Param::CentsArray(&[150, -1, 0]),
                    Param::TextArray(&["a", "", "b c"]),
                ],
                [
                    "{1,-2}",
                    "{2147483647}",
                    "{1.50,-0.01,0.00}",
                    "{a,\"\",\"b c\"}",
                ],
            ),
            (
                [
                    Param::Int2Array(&[]),
                    Param::Int4Array(&[]),
                    Param::CentsArray(&[]),
                    Param::TextArray(&[]),
                ],
                ["{}"; 4],
            ),
        ] {
            row(&mut session, 0, &params, |row| {
                for (column, expected) in printed.iter().enumerate() {
                    assert_eq!(row.text(column)?, *expected);
                }
                Ok(())
            })
            .unwrap();
        }
        let params = [
            Param::Int4Array(&[2, 3]),
            Param::CentsArray(&[150, 10]),
            Param::TextArray(&["z", "y"]),
        ];
        row(&mut session, 1, &params, |row| {
            assert_eq!(row.decimal(0, 2)?, 330);
            assert_eq!(row.text(1)?, "y");
            Ok(())
        })
        .unwrap();
    }
}
