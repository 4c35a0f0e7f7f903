//! Binary forms of values. Writers append the length and the bytes of one parameter; readers take
//! the bytes of one column.

use super::frontend::counted_value;
use super::{Malformed, numeric};

/// Type identifiers of `pg_type`, fixed since their types exist.
pub const INT2_OID: i32 = 21;
pub const INT4_OID: i32 = 23;
pub const TEXT_OID: i32 = 25;
pub const NUMERIC_OID: i32 = 1700;

pub fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i32).to_be_bytes());
}

pub fn int2(out: &mut Vec<u8>, value: i16) {
    counted_value(out, |out| out.extend_from_slice(&value.to_be_bytes()));
}

pub fn int4(out: &mut Vec<u8>, value: i32) {
    counted_value(out, |out| out.extend_from_slice(&value.to_be_bytes()));
}

/// `bigint`; also `timestamp`, microseconds since 2000-01-01 00:00:00.
pub fn int8(out: &mut Vec<u8>, value: i64) {
    counted_value(out, |out| out.extend_from_slice(&value.to_be_bytes()));
}

/// `numeric`: `value` × 10^-`scale`.
pub fn decimal(out: &mut Vec<u8>, value: i64, scale: u32) {
    counted_value(out, |out| numeric::encode(out, value, scale));
}

pub fn text(out: &mut Vec<u8>, value: &str) {
    counted_value(out, |out| out.extend_from_slice(value.as_bytes()));
}

pub fn int2_array(out: &mut Vec<u8>, values: &[i16]) {
    array(out, INT2_OID, values, |out, value| int2(out, *value));
}

pub fn int4_array(out: &mut Vec<u8>, values: &[i32]) {
    array(out, INT4_OID, values, |out, value| int4(out, *value));
}

/// `numeric[]`, each value × 10^-`scale`.
pub fn decimal_array(out: &mut Vec<u8>, values: &[i64], scale: u32) {
    array(out, NUMERIC_OID, values, |out, value| {
        decimal(out, *value, scale);
    });
}

/// `text[]`. The server takes it for no other type: cast the parameter with `$1::text[]`.
pub fn text_array(out: &mut Vec<u8>, values: &[&str]) {
    array(out, TEXT_OID, values, |out, value| text(out, value));
}

/// A one-dimensional array with lower bound 1 and without NULL; no dimension when empty
/// (`array_recv` in arrayfuncs.c).
fn array<T>(out: &mut Vec<u8>, oid: i32, values: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    counted_value(out, |out| {
        let dimensions = i32::from(!values.is_empty());
        for word in [dimensions, 0, oid] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        if values.is_empty() {
            return;
        }
        let count = i32::try_from(values.len()).expect("an array is shorter than 2^31");
        for word in [count, 1] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        for value in values {
            write(out, value);
        }
    });
}

pub fn read_int2(bytes: &[u8]) -> Result<i16, Malformed> {
    Ok(i16::from_be_bytes(fixed(bytes, "int2")?))
}

pub fn read_int4(bytes: &[u8]) -> Result<i32, Malformed> {
    Ok(i32::from_be_bytes(fixed(bytes, "int4")?))
}

pub fn read_int8(bytes: &[u8]) -> Result<i64, Malformed> {
    Ok(i64::from_be_bytes(fixed(bytes, "int8")?))
}

pub fn read_timestamp(bytes: &[u8]) -> Result<i64, Malformed> {
    Ok(i64::from_be_bytes(fixed(bytes, "timestamp")?))
}

pub fn read_text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::new("text"))
}

fn fixed<const N: usize>(bytes: &[u8], what: &'static str) -> Result<[u8; N], Malformed> {
    bytes.try_into().map_err(|_| Malformed::new(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        build(&mut out);
        out
    }

    #[test]
    fn scalars_are_length_and_big_endian_bytes() {
        assert_eq!(bytes(null), [255; 4]);
        assert_eq!(bytes(|o| int2(o, -2)), [0, 0, 0, 2, 255, 254]);
        assert_eq!(bytes(|o| int4(o, 258)), [0, 0, 0, 4, 0, 0, 1, 2]);
        assert_eq!(bytes(|o| int8(o, 1)), [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(bytes(|o| text(o, "é")), [0, 0, 0, 2, 0xc3, 0xa9]);
        assert_eq!(
            bytes(|o| decimal(o, 100, 2)),
            [0, 0, 0, 10, 0, 1, 0, 0, 0, 0, 0, 2, 0, 1]
        );
    }

    #[test]
    fn arrays_carry_the_oid_of_their_elements() {
        assert_eq!(
            bytes(|o| int2_array(o, &[7, 8])),
            b"\0\0\0\x20\0\0\0\x01\0\0\0\0\0\0\0\x15\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x07\0\0\0\x02\0\x08"
        );
        assert_eq!(
            bytes(|o| int4_array(o, &[7])),
            b"\0\0\0\x1c\0\0\0\x01\0\0\0\0\0\0\0\x17\0\0\0\x01\0\0\0\x01\0\0\0\x04\0\0\0\x07"
        );
        assert_eq!(
            bytes(|o| text_array(o, &["a"])),
            b"\0\0\0\x19\0\0\0\x01\0\0\0\0\0\0\0\x19\0\0\0\x01\0\0\0\x01\0\0\0\x01a"
        );
        let numeric = bytes(|o| decimal_array(o, &[100], 2));
        assert_eq!(numeric[12..16], NUMERIC_OID.to_be_bytes());
    }

    #[test]
    fn an_empty_array_has_no_dimension() {
        assert_eq!(
            bytes(|o| int4_array(o, &[])),
            [0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 23]
        );
    }

    #[test]
    fn readers_refuse_a_wrong_length() {
        assert_eq!(read_int2(&[1, 2]), Ok(258));
        assert_eq!(read_int4(&[0, 0, 1, 2]), Ok(258));
        assert_eq!(read_int8(&[255; 8]), Ok(-1));
        assert_eq!(read_timestamp(&[0; 8]), Ok(0));
        assert_eq!(read_text(b"abc"), Ok("abc"));
        for length in [0, 1, 3, 5, 7, 9] {
            let bytes = vec![0; length];
            assert!(read_int2(&bytes).is_err() && read_int4(&bytes).is_err());
            assert!(read_int8(&bytes).is_err() && read_timestamp(&bytes).is_err());
        }
        assert!(read_text(&[0xff]).is_err());
    }
}
