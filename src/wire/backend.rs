//! The messages that a server sends, borrowed from the receive buffer.

use super::Malformed;

/// The longest message believed; more means that the bytes are no protocol 3 at all.
/// PostgreSQL allocates at most 1 GiB − 1 for a message.
const LENGTH_MAX: usize = 0x3fff_ffff;

/// The tag and body of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub tag: u8,
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// Length in the stream, with tag and length field.
    pub fn size(&self) -> usize {
        self.body.len() + 5
    }
}

/// The message at the head of `bytes`; `None` when it has not arrived completely.
pub fn frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let Some((&[tag, a, b, c, d], _)) = bytes.split_first_chunk::<5>() else {
        return Ok(None);
    };
    let length = usize::try_from(i32::from_be_bytes([a, b, c, d]))
        .ok()
        .filter(|length| (4..=LENGTH_MAX).contains(length))
        .ok_or(Malformed::new("message length"))?;
    Ok(bytes.get(5..=length).map(|body| Frame { tag, body }))
}

/// A message, understood. Texts are bytes: before authentication the server may send any encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    Authentication(Authentication<'a>),
    BackendKeyData { process_id: i32, secret: &'a [u8] },
    BindComplete,
    CloseComplete,
    CommandComplete(&'a [u8]),
    CopyData(&'a [u8]),
    CopyDone,
    CopyInResponse,
    CopyOutResponse,
    DataRow(DataRow<'a>),
    EmptyQueryResponse,
    ErrorResponse(Fields<'a>),
    NegotiateProtocolVersion { minor: i32 },
    NoData,
    NoticeResponse(Fields<'a>),
    NotificationResponse { process_id: i32 },
    ParameterDescription,
    ParameterStatus { name: &'a [u8], value: &'a [u8] },
    ParseComplete,
    PortalSuspended,
    ReadyForQuery(TransactionStatus),
    RowDescription(RowDescription<'a>),
}

/// What the server wants for authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    Ok,
    CleartextPassword,
    Md5Password {
        salt: [u8; 4],
    },
    /// Mechanism names, each ended by NUL.
    Sasl {
        mechanisms: &'a [u8],
    },
    SaslContinue(&'a [u8]),
    SaslFinal(&'a [u8]),
    /// Kerberos V5, GSSAPI, SSPI …: the code of the request.
    Other(i32),
}

/// The last byte of `ReadyForQuery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    Idle,
    Open,
    Failed,
}

/// Understands a frame.
pub fn message(frame: Frame<'_>) -> Result<Message<'_>, Malformed> {
    let mut body = Body(frame.body);
    let message = match frame.tag {
        b'R' => Message::Authentication(authentication(&mut body)?),
        b'K' => Message::BackendKeyData {
            process_id: body.int4("BackendKeyData")?,
            secret: body.rest(),
        },
        b'2' => Message::BindComplete,
        b'3' => Message::CloseComplete,
        b'C' => Message::CommandComplete(body.cstring("CommandComplete")?),
        b'd' => Message::CopyData(body.rest()),
        b'c' => Message::CopyDone,
        b'G' => Message::CopyInResponse,
        b'H' => Message::CopyOutResponse,
        b'D' => Message::DataRow(DataRow::parse(frame.body)?),
        b'I' => Message::EmptyQueryResponse,
        b'E' => Message::ErrorResponse(Fields::parse(frame.body)?),
        b'v' => Message::NegotiateProtocolVersion {
            minor: body.int4("NegotiateProtocolVersion")?,
        },
        b'n' => Message::NoData,
        b'N' => Message::NoticeResponse(Fields::parse(frame.body)?),
        b'A' => Message::NotificationResponse {
            process_id: body.int4("NotificationResponse")?,
        },
        b't' => Message::ParameterDescription,
        b'S' => Message::ParameterStatus {
            name: body.cstring("ParameterStatus")?,
            value: body.cstring("ParameterStatus")?,
        },
        b'1' => Message::ParseComplete,
        b's' => Message::PortalSuspended,
        b'Z' => Message::ReadyForQuery(match frame.body {
            b"I" => TransactionStatus::Idle,
            b"T" => TransactionStatus::Open,
            b"E" => TransactionStatus::Failed,
            _ => return Err(Malformed::new("ReadyForQuery")),
        }),
        b'T' => Message::RowDescription(RowDescription::parse(frame.body)?),
        _ => return Err(Malformed::new("message type")),
    };
    Ok(message)
}

fn authentication<'a>(body: &mut Body<'a>) -> Result<Authentication<'a>, Malformed> {
    Ok(match body.int4("Authentication")? {
        0 => Authentication::Ok,
        3 => Authentication::CleartextPassword,
        5 => Authentication::Md5Password {
            salt: body
                .rest()
                .try_into()
                .map_err(|_| Malformed::new("AuthenticationMD5Password"))?,
        },
        10 => Authentication::Sasl {
            mechanisms: body.rest(),
        },
        11 => Authentication::SaslContinue(body.rest()),
        12 => Authentication::SaslFinal(body.rest()),
        code => Authentication::Other(code),
    })
}

/// The columns of one row, each `None` for NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRow<'a> {
    columns: u16,
    values: &'a [u8],
}

impl<'a> DataRow<'a> {
    /// Reads the count of columns; lengths are checked when a column is asked for.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Body(body);
        Ok(Self {
            columns: body.int2("DataRow")?.cast_unsigned(),
            values: body.rest(),
        })
    }

    pub fn len(&self) -> usize {
        usize::from(self.columns)
    }

    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    /// Column `index`, counted from 0.
    pub fn column(&self, index: usize) -> Result<Option<&'a [u8]>, Malformed> {
        if index >= self.len() {
            return Err(Malformed::new("DataRow: too few columns"));
        }
        let mut body = Body(self.values);
        for _ in 0..index {
            body.value()?;
        }
        body.value()
    }

    /// All columns in order.
    pub fn columns(&self) -> impl Iterator<Item = Result<Option<&'a [u8]>, Malformed>> + use<'a> {
        let mut body = Body(self.values);
        (0..self.columns).map(move |_| body.value())
    }
}

/// The fields of an error or notice, each a code and a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Body(body);
        while rest.byte("ErrorResponse")? != 0 {
            rest.cstring("ErrorResponse")?;
        }
        Ok(Self(body))
    }

    /// The text of a field: `S` severity, `V` the same never translated (since 9.6), `C` SQLSTATE,
    /// `M` message, `D` detail, `H` hint …
    pub fn get(&self, code: u8) -> Option<&'a [u8]> {
        let mut rest = Body(self.0);
        loop {
            match rest.byte("ErrorResponse").ok()? {
                0 => return None,
                found => {
                    let text = rest.cstring("ErrorResponse").ok()?;
                    if found == code {
                        return Some(text);
                    }
                }
            }
        }
    }
}

/// The names of the columns that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowDescription<'a> {
    columns: u16,
    fields: &'a [u8],
}

impl<'a> RowDescription<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Body(body);
        let description = Self {
            columns: body.int2("RowDescription")?.cast_unsigned(),
            fields: body.rest(),
        };
        for name in description.names() {
            name?;
        }
        Ok(description)
    }

    pub fn names(&self) -> impl Iterator<Item = Result<&'a [u8], Malformed>> + use<'a> {
        /// Table, attribute, type, length, modifier, format.
        const AFTER_NAME: usize = 4 + 2 + 4 + 2 + 4 + 2;
        let mut body = Body(self.fields);
        (0..self.columns).map(move |_| {
            let name = body.cstring("RowDescription")?;
            body.take(AFTER_NAME, "RowDescription")?;
            Ok(name)
        })
    }
}

/// A cursor over the body of a message.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self
            .0
            .split_at_checked(length)
            .ok_or(Malformed::new(what))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let (head, tail) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(Malformed::new(what))?;
        self.0 = tail;
        Ok(*head)
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(what)?[0])
    }

    fn int2(&mut self, what: &'static str) -> Result<i16, Malformed> {
        Ok(i16::from_be_bytes(self.array(what)?))
    }

    fn int4(&mut self, what: &'static str) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array(what)?))
    }

    fn cstring(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(Malformed::new(what))?;
        let (text, tail) = self.0.split_at(end);
        self.0 = &tail[1..];
        Ok(text)
    }

    fn value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.int4("DataRow")? {
            -1 => Ok(None),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| Malformed::new("DataRow: length"))?;
                self.take(length, "DataRow: length").map(Some)
            }
        }
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MALFORMED_LENGTH: Malformed = Malformed {
        what: "message length",
    };

    /// One of each message, as servers send them.
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn examples() -> Vec<(&'static [u8], Message<'static>)> {
        let row_body: &'static [u8] = b"\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0";
        let error_body: &'static [u8] = b"SERROR\0VERROR\0C23505\0Mdouble\0Hno\0\0";
        let columns: &'static [u8] =
            b"\0\x01name\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
        vec![
            (
                b"R\0\0\0\x08\0\0\0\0",
                Message::Authentication(Authentication::Ok),
            ),
            (
                b"R\0\0\0\x08\0\0\0\x03",
                Message::Authentication(Authentication::CleartextPassword),
            ),
            (
                b"R\0\0\0\x0c\0\0\0\x05salt",
                Message::Authentication(Authentication::Md5Password { salt: *b"salt" }),
            ),
            (
                b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0",
                Message::Authentication(Authentication::Sasl {
                    mechanisms: b"SCRAM-SHA-256\0\0",
                }),
            ),
            (
                b"R\0\0\0\x0b\0\0\0\x0br=x",
                Message::Authentication(Authentication::SaslContinue(b"r=x")),
            ),
            (
                b"R\0\0\0\x0b\0\0\0\x0cv=x",
                Message::Authentication(Authentication::SaslFinal(b"v=x")),
            ),
            (
                b"R\0\0\0\x08\0\0\0\x07",
                Message::Authentication(Authentication::Other(7)),
            ),
            (
                b"K\0\0\0\x0c\0\0\0\x07\x01\x02\x03\x04",
                Message::BackendKeyData {
                    process_id: 7,
                    secret: &[1, 2, 3, 4],
                },
            ),
            (b"2\0\0\0\x04", Message::BindComplete),
            (b"3\0\0\0\x04", Message::CloseComplete),
            (
                b"C\0\0\0\x0dSELECT 1\0",
                Message::CommandComplete(b"SELECT 1"),
            ),
            (b"d\0\0\0\x06xy", Message::CopyData(b"xy")),
            (b"c\0\0\0\x04", Message::CopyDone),
            (b"G\0\0\0\x07\x01\0\0", Message::CopyInResponse),
            (b"H\0\0\0\x07\x01\0\0", Message::CopyOutResponse),
            (
                b"D\0\0\0\x13\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0",
                Message::DataRow(DataRow {
                    columns: 3,
                    values: &row_body[2..],
                }),
            ),
            (b"I\0\0\0\x04", Message::EmptyQueryResponse),
            (
                b"E\0\0\0\x26SERROR\0VERROR\0C23505\0Mdouble\0Hno\0\0",
                Message::ErrorResponse(Fields(error_body)),
            ),
            (
                b"N\0\0\0\x26SERROR\0VERROR\0C23505\0Mdouble\0Hno\0\0",
                Message::NoticeResponse(Fields(error_body)),
            ),
            (
                b"v\0\0\0\x0c\0\0\0\0\0\0\0\0",
                Message::NegotiateProtocolVersion { minor: 0 },
            ),
            (b"n\0\0\0\x04", Message::NoData),
            (
                b"A\0\0\0\x0b\0\0\0\x07c\0\0",
                Message::NotificationResponse { process_id: 7 },
            ),
            (b"t\0\0\0\x06\0\0", Message::ParameterDescription),
            (
                b"S\0\0\0\x08a\0b\0",
                Message::ParameterStatus {
                    name: b"a",
                    value: b"b",
                },
            ),
            (b"1\0\0\0\x04", Message::ParseComplete),
            (b"s\0\0\0\x04", Message::PortalSuspended),
            (
                b"Z\0\0\0\x05I",
                Message::ReadyForQuery(TransactionStatus::Idle),
            ),
            (
                b"Z\0\0\0\x05T",
                Message::ReadyForQuery(TransactionStatus::Open),
            ),
            (
                b"Z\0\0\0\x05E",
                Message::ReadyForQuery(TransactionStatus::Failed),
            ),
            (
                b"T\0\0\0\x1d\0\x01name\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0",
                Message::RowDescription(RowDescription {
                    columns: 1,
                    fields: &columns[2..],
                }),
            ),
        ]
    }

    #[test]
    fn every_message_is_understood() {
        for (bytes, expected) in examples() {
            let frame = frame(bytes).unwrap().unwrap();
            assert_eq!(frame.size(), bytes.len(), "{bytes:?}");
            assert_eq!(message(frame), Ok(expected), "{bytes:?}");
        }
    }

    #[test]
    fn every_truncation_of_every_message_needs_more() {
        for (bytes, _) in examples() {
            for length in 0..bytes.len() {
                assert_eq!(frame(&bytes[..length]), Ok(None), "{:?}", &bytes[..length]);
            }
        }
    }

    #[test]
    fn what_follows_a_message_is_left_alone() {
        let frame = frame(b"1\0\0\0\x04Z\0\0").unwrap().unwrap();
        assert_eq!(frame.size(), 5);
    }

    #[test]
    fn impossible_lengths_are_errors() {
        for length in [0, 1, 3, -1, i32::MIN, i32::MAX, 0x4000_0000] {
            let mut bytes = vec![b'Z'];
            bytes.extend_from_slice(&i32::to_be_bytes(length));
            bytes.push(b'I');
            assert_eq!(frame(&bytes), Err(MALFORMED_LENGTH), "{length}");
        }
        // What a web server answers.
        assert_eq!(frame(b"HTTP/1.1 400 Bad Request"), Err(MALFORMED_LENGTH));
    }

    #[test]
    fn bodies_that_are_cut_short_are_errors() {
        for (bytes, whole) in examples() {
            let tag = bytes[0];
            let fixed = matches!(
                whole,
                Message::CopyInResponse
                    | Message::CopyOutResponse
                    | Message::ParameterDescription
                    | Message::NotificationResponse { .. }
                    | Message::NegotiateProtocolVersion { .. }
            );
            for length in 5..bytes.len() {
                let body = &bytes[5..length];
                let cut = message(Frame { tag, body });
                // What is left must not be taken for the whole.
                assert!(fixed || cut != Ok(whole), "{bytes:?} cut to {length}");
            }
        }
        for body in [&b"X"[..], b"", b"II"] {
            assert!(message(Frame { tag: b'Z', body }).is_err());
        }
        assert!(
            message(Frame {
                tag: b'!',
                body: b""
            })
            .is_err()
        );
    }

    #[test]
    fn columns_are_found_by_index_and_lengths_are_checked() {
        let row = DataRow::parse(b"\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0").unwrap();
        assert_eq!(row.len(), 3);
        assert_eq!(row.column(0), Ok(Some(&b"a"[..])));
        assert_eq!(row.column(1), Ok(None));
        assert_eq!(row.column(2), Ok(Some(&b""[..])));
        assert!(row.column(3).is_err());
        assert_eq!(row.columns().count(), 3);
        for body in [
            &b"\0\x01\0\0\0\x02a"[..],
            b"\0\x01\xff\xff\xff\xfe",
            b"\0\x01\0\0",
            b"\0\x01\x7f\xff\xff\xff",
        ] {
            assert!(DataRow::parse(body).unwrap().column(0).is_err(), "{body:?}");
        }
    }

    #[test]
    fn fields_of_an_error_are_found_by_their_code() {
        let fields = Fields::parse(b"SERROR\0C23505\0Mdouble\0\0").unwrap();
        assert_eq!(fields.get(b'C'), Some(&b"23505"[..]));
        assert_eq!(fields.get(b'M'), Some(&b"double"[..]));
        assert_eq!(fields.get(b'H'), None);
        assert!(Fields::parse(b"SERROR\0").is_err());
        assert!(Fields::parse(b"SERR").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(tag: u8, bytes: Vec<u8>) {
            let _ = frame(&bytes);
            if let Ok(Message::DataRow(row)) = message(Frame { tag, body: &bytes }) {
                for index in 0..row.len().min(50) {
                    let _ = row.column(index);
                }
            }
            let _ = message(Frame { tag: b'D', body: &bytes });
            let _ = message(Frame { tag: b'E', body: &bytes });
            let _ = message(Frame { tag: b'T', body: &bytes });
        }
    }
}
