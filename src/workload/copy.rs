//! Rows on their way into COPY: one writer for the binary form and for CSV files.

use crate::session::write_decimal;

/// The form of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// `COPY … WITH (FORMAT binary)`; the file header and trailer are the sender's:
    /// [`BINARY_HEADER`] and [`BINARY_TRAILER`].
    Binary,
    /// `COPY … WITH (FORMAT csv)`: NULL is empty and unquoted.
    Csv,
}

/// What a binary COPY begins with: signature, no flags, no header extension.
pub const BINARY_HEADER: [u8; 19] = *b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What a binary COPY ends with: a field count of -1.
pub const BINARY_TRAILER: [u8; 2] = [0xff, 0xff];

/// Rows of one table, appended field by field: `begin_row`, one call for each column, `end_row`.
/// Nothing is allocated but the growing buffer.
#[derive(Debug)]
pub struct CopyBuffer {
    pub format: CopyFormat,
    pub bytes: Vec<u8>,
    pub rows: u64,
}

impl CopyBuffer {
    /// An empty buffer.
    pub fn new(format: CopyFormat) -> Self {
        Self {
            format,
            bytes: Vec::new(),
            rows: 0,
        }
    }

    /// Forgets the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows = 0;
    }

    /// Begins a row of `fields` fields.
    #[inline]
    pub fn begin_row(&mut self, fields: i16) {
        if self.format == CopyFormat::Binary {
            self.bytes.extend_from_slice(&fields.to_be_bytes());
        }
    }

    /// Ends the row.
    #[inline]
    pub fn end_row(&mut self) {
        if self.format == CopyFormat::Csv {
            // Every field wrote a comma behind itself.
            match self.bytes.last_mut() {
                Some(last) if *last == b',' => *last = b'\n',
                _ => self.bytes.push(b'\n'),
            }
        }
        self.rows += 1;
    }

    #[inline]
    pub fn null(&mut self) {
        match self.format {
            CopyFormat::Binary => self.bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
            CopyFormat::Csv => self.bytes.push(b','),
        }
    }

    #[inline]
    pub fn int2(&mut self, value: i16) {
        match self.format {
            CopyFormat::Binary => self.binary(&value.to_be_bytes()),
            CopyFormat::Csv => self.csv_integer(i64::from(value)),
        }
    }

    #[inline]
    pub fn int4(&mut self, value: i32) {
        match self.format {
            CopyFormat::Binary => self.binary(&value.to_be_bytes()),
            CopyFormat::Csv => self.csv_integer(i64::from(value)),
        }
    }

    /// A numeric with two decimals, given in hundredths: money.
    #[inline]
    pub fn cents(&mut self, value: i64) {
        match self.format {
            CopyFormat::Binary => write_decimal(&mut self.bytes, value, 2),
            CopyFormat::Csv => self.csv_decimal(value, 2),
        }
    }

    /// A numeric with four decimals, given in ten-thousandths: taxes and discounts.
    #[inline]
    pub fn ratio(&mut self, value: i32) {
        match self.format {
            CopyFormat::Binary => write_decimal(&mut self.bytes, i64::from(value), 4),
            CopyFormat::Csv => self.csv_decimal(i64::from(value), 4),
        }
    }

    /// Microseconds since 2000-01-01 00:00:00, without time zone.
    #[inline]
    pub fn timestamp(&mut self, micros: i64) {
        match self.format {
            CopyFormat::Binary => self.binary(&micros.to_be_bytes()),
            CopyFormat::Csv => self.csv_timestamp(micros),
        }
    }

    /// Any text; CSV quotes it where it must.
    pub fn text(&mut self, value: &[u8]) {
        match self.format {
            CopyFormat::Binary => self.binary(value),
            CopyFormat::Csv => self.csv_text(value),
        }
    }

    /// Text of `length` bytes that `fill` writes in place; it must need no quoting in CSV
    /// (letters and digits do not), which spares a copy and a look at every byte.
    #[inline]
    pub fn plain_text(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        debug_assert!(length > 0, "an empty text would be NULL in CSV");
        if self.format == CopyFormat::Binary {
            self.length(length);
        }
        let begin = self.bytes.len();
        self.bytes.resize(begin + length, 0);
        fill(&mut self.bytes[begin..]);
        debug_assert!(!self.bytes[begin..].iter().any(|&byte| needs_quotes(byte)));
        if self.format == CopyFormat::Csv {
            self.bytes.push(b',');
        }
    }

    #[inline]
    fn binary(&mut self, value: &[u8]) {
        self.length(value.len());
        self.bytes.extend_from_slice(value);
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "a field of 2 GiB would be refused by the server anyway"
    )]
    fn length(&mut self, length: usize) {
        self.bytes.extend_from_slice(&(length as i32).to_be_bytes());
    }

    fn csv_integer(&mut self, value: i64) {
        if value < 0 {
            self.bytes.push(b'-');
        }
        self.digits(value.unsigned_abs(), 1);
        self.bytes.push(b',');
    }

    fn csv_decimal(&mut self, value: i64, scale: u32) {
        let (magnitude, unit) = (value.unsigned_abs(), 10_u64.pow(scale));
        if value < 0 {
            self.bytes.push(b'-');
        }
        self.digits(magnitude / unit, 1);
        self.bytes.push(b'.');
        self.digits(magnitude % unit, scale as usize);
        self.bytes.push(b',');
    }

    /// At least `width` decimal digits.
    #[allow(clippy::cast_possible_truncation, reason = "a digit is below 10")]
    fn digits(&mut self, mut value: u64, width: usize) {
        let mut text = [b'0'; 20];
        let mut begin = text.len();
        while value > 0 || text.len() - begin < width {
            begin -= 1;
            text[begin] = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.bytes.extend_from_slice(&text[begin..]);
    }

    /// ISO 8601 with a space, with microseconds only where there are any.
    fn csv_timestamp(&mut self, micros: i64) {
        const DAY: i64 = 86_400_000_000;
        let (year, month, day) = civil(micros.div_euclid(DAY));
        let of_day = micros.rem_euclid(DAY).unsigned_abs();
        let seconds = of_day / 1_000_000;
        self.digits(year, 4);
        for (separator, value) in [
            (b'-', month),
            (b'-', day),
            (b' ', seconds / 3600),
            (b':', seconds / 60 % 60),
            (b':', seconds % 60),
        ] {
            self.bytes.push(separator);
            self.digits(value, 2);
        }
        if !of_day.is_multiple_of(1_000_000) {
            self.bytes.push(b'.');
            self.digits(of_day % 1_000_000, 6);
        }
        self.bytes.push(b',');
    }

    fn csv_text(&mut self, value: &[u8]) {
        if !value.is_empty() && !value.iter().any(|&byte| needs_quotes(byte)) {
            self.bytes.extend_from_slice(value);
        } else {
            self.bytes.push(b'"');
            for &byte in value {
                if byte == b'"' {
                    self.bytes.push(b'"');
                }
                self.bytes.push(byte);
            }
            self.bytes.push(b'"');
        }
        self.bytes.push(b',');
    }
}

/// A backslash because `\.` alone on a line ends the data before PostgreSQL 18.
fn needs_quotes(byte: u8) -> bool {
    matches!(byte, b',' | b'"' | b'\n' | b'\r' | b'\\')
}

/// Year, month and day of a day counted from 2000-01-01 (Hinnant, "chrono-compatible low-level
/// date algorithms"); years 0000 to 9999.
fn civil(day: i64) -> (u64, u64, u64) {
    // Days since 0000-03-01: the leap day is the last of its year.
    let days = (day + 730_425).unsigned_abs();
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(write: impl FnOnce(&mut CopyBuffer)) -> String {
        let mut buffer = CopyBuffer::new(CopyFormat::Csv);
        buffer.begin_row(1);
        write(&mut buffer);
        buffer.end_row();
        String::from_utf8(buffer.bytes).unwrap()
    }

    fn binary(write: impl FnOnce(&mut CopyBuffer)) -> Vec<u8> {
        let mut buffer = CopyBuffer::new(CopyFormat::Binary);
        write(&mut buffer);
        buffer.bytes
    }

    #[test]
    fn csv_quotes_what_would_be_read_as_something_else() {
        for (text, written) in [
            ("abc", "abc\n"),
            ("", "\"\"\n"),
            ("a,b", "\"a,b\"\n"),
            ("say \"x\"", "\"say \"\"x\"\"\"\n"),
            ("two\nlines", "\"two\nlines\"\n"),
            ("\\.", "\"\\.\"\n"),
        ] {
            assert_eq!(csv(|b| b.text(text.as_bytes())), written);
        }
        assert_eq!(csv(CopyBuffer::null), "\n");
        let row = csv(|b| {
            b.int2(-7);
            b.null();
            b.text(b"x");
            b.null();
        });
        assert_eq!(row, "-7,,x,\n");
    }

    #[test]
    fn csv_numbers_carry_all_their_decimals() {
        for (value, written) in [
            (0, "0.00\n"),
            (5, "0.05\n"),
            (-1000, "-10.00\n"),
            (30_000_000, "300000.00\n"),
            (i64::MIN, "-92233720368547758.08\n"),
        ] {
            assert_eq!(csv(|b| b.cents(value)), written);
        }
        assert_eq!(csv(|b| b.ratio(2000)), "0.2000\n");
        assert_eq!(csv(|b| b.ratio(-1)), "-0.0001\n");
        assert_eq!(csv(|b| b.int4(i32::MIN)), "-2147483648\n");
    }

    #[test]
    fn timestamps_count_from_2000() {
        const DAY: i64 = 86_400_000_000;
        for (micros, written) in [
            (0, "2000-01-01 00:00:00\n"),
            (-1, "1999-12-31 23:59:59.999999\n"),
            (59 * DAY, "2000-02-29 00:00:00\n"),
            (60 * DAY, "2000-03-01 00:00:00\n"),
            (9497 * DAY + 3_661_000_000, "2026-01-01 01:01:01\n"),
            (-36_524 * DAY, "1900-01-01 00:00:00\n"),
            (36_889 * DAY, "2100-12-31 00:00:00\n"),
        ] {
            assert_eq!(csv(|b| b.timestamp(micros)), written);
        }
        assert_eq!(
            binary(|b| b.timestamp(1)),
            [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]
        );
    }

    /// Words: number of digits, weight, sign, scale, digits; as `numeric_send` writes them.
    #[test]
    fn binary_numerics_are_what_the_server_would_send() {
        let words = |words: &[i16]| {
            let mut bytes = i32::try_from(words.len() * 2)
                .unwrap()
                .to_be_bytes()
                .to_vec();
            bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
            bytes
        };
        for (cents, expected) in [
            (0, vec![0, 0, 0, 2]),
            (1, vec![1, -1, 0, 2, 100]),
            (-1, vec![1, -1, 0x4000, 2, 100]),
            (100, vec![1, 0, 0, 2, 1]),
            (1234, vec![2, 0, 0, 2, 12, 3400]),
            (1_000_000, vec![1, 1, 0, 2, 1]),
            (30_000_000, vec![1, 1, 0, 2, 30]),
            (30_000_001, vec![3, 1, 0, 2, 30, 0, 100]),
            (-1000, vec![1, 0, 0x4000, 2, 10]),
            (
                9_007_199_254_740_993,
                vec![5, 3, 0, 2, 90, 719, 9254, 7409, 9300],
            ),
        ] {
            assert_eq!(binary(|b| b.cents(cents)), words(&expected), "{cents}");
        }
        assert_eq!(binary(|b| b.ratio(0)), words(&[0, 0, 0, 4]));
        assert_eq!(binary(|b| b.ratio(1)), words(&[1, -1, 0, 4, 1]));
        assert_eq!(binary(|b| b.ratio(12_500)), words(&[2, 0, 0, 4, 1, 2500]));
    }

    #[test]
    fn binary_fields_carry_their_length_and_rows_are_counted() {
        let mut buffer = CopyBuffer::new(CopyFormat::Binary);
        buffer.begin_row(4);
        buffer.int2(1);
        buffer.text(b"ab");
        buffer.null();
        buffer.plain_text(3, |slot| slot.copy_from_slice(b"xyz"));
        buffer.end_row();
        let expected = [
            &[0, 4][..],
            &[0, 0, 0, 2, 0, 1],
            &[0, 0, 0, 2, b'a', b'b'],
            &[0xff; 4],
            &[0, 0, 0, 3, b'x', b'y', b'z'],
        ];
        assert_eq!(buffer.bytes, expected.concat());
        assert_eq!(buffer.rows, 1);
        buffer.clear();
        assert_eq!((buffer.bytes.len(), buffer.rows), (0, 0));
    }
}
