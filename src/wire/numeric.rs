//! `numeric` as a scaled integer: exact, both ways.
//!
//! The binary form (`numeric_send` in PostgreSQL's numeric.c) is a header of four 16-bit words —
//! count of digits, weight of the first, sign, display scale — and digits to the base 10,000 that
//! are aligned at the decimal point.

use super::Malformed;

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const POSITIVE_INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;

/// Decimal digits in one digit to the base 10,000.
const DIGIT_DECIMALS: u32 = 4;
const BASE: u128 = 10_000;
/// The largest scale that [`encode`] takes; more decimals than an `i64` has digits are of no use.
pub const SCALE_MAX: u32 = 18;
/// Digits to the base 10,000 of the largest value: 19 decimals, padded to a whole digit at either
/// side of the point.
const DIGITS_MAX: usize = 7;

/// Why a numeric is no whole number of 10^-scale in an `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumericError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("NaN or infinity")]
    NotFinite,
    #[error("more decimals than expected")]
    TooPrecise,
    #[error("out of range")]
    OutOfRange,
}

/// Appends `value` × 10^-`scale` (no length). `scale` is at most [`SCALE_MAX`].
pub fn encode(out: &mut Vec<u8>, value: i64, scale: u32) {
    assert!(scale <= SCALE_MAX, "a scale of {scale} is not supported");
    let padding = (DIGIT_DECIMALS - scale % DIGIT_DECIMALS) % DIGIT_DECIMALS;
    let mut rest = u128::from(value.unsigned_abs()) * 10_u128.pow(padding);
    // Weight of the least significant digit.
    let mut weight = -i32::try_from((scale + padding) / DIGIT_DECIMALS).unwrap_or(0);
    let mut digits = [0_u16; DIGITS_MAX];
    let mut count = 0;
    while rest > 0 {
        let digit = u16::try_from(rest % BASE).unwrap_or(0);
        rest /= BASE;
        if count == 0 && digit == 0 {
            // Trailing zeros are not stored.
            weight += 1;
            continue;
        }
        digits[count] = digit;
        count += 1;
    }
    let first_weight = if count == 0 {
        0
    } else {
        weight + i32::try_from(count).unwrap_or(0) - 1
    };
    let sign = if value < 0 { NEGATIVE } else { POSITIVE };
    for word in [
        u16::try_from(count).unwrap_or(0).to_be_bytes(),
        i16::try_from(first_weight).unwrap_or(0).to_be_bytes(),
        sign.to_be_bytes(),
        u16::try_from(scale).unwrap_or(0).to_be_bytes(),
    ] {
        out.extend_from_slice(&word);
    }
    for digit in digits[..count].iter().rev() {
        out.extend_from_slice(&digit.to_be_bytes());
    }
}

/// The value × 10^`scale`. Zeros beyond `scale` do not matter; other digits there are
/// [`NumericError::TooPrecise`].
pub fn decode(bytes: &[u8], scale: u32) -> Result<i64, NumericError> {
    let malformed = Malformed::new("numeric");
    let (header, digits) = bytes.split_at_checked(8).ok_or(malformed)?;
    let word = |i: usize| u16::from_be_bytes([header[2 * i], header[2 * i + 1]]);
    match word(2) {
        POSITIVE | NEGATIVE => {}
        NAN | POSITIVE_INFINITY | NEGATIVE_INFINITY => return Err(NumericError::NotFinite),
        _ => return Err(malformed.into()),
    }
    if digits.len() != 2 * usize::from(word(0)) {
        return Err(malformed.into());
    }
    let weight = i32::from(word(1).cast_signed());
    // The power of ten, in units of 10^-scale, of the digit at hand.
    let mut exponent = i64::from(weight) * i64::from(DIGIT_DECIMALS) + i64::from(scale);
    let mut magnitude = 0_i128;
    for digit in digits.chunks_exact(2) {
        let digit = i128::from(u16::from_be_bytes([digit[0], digit[1]]));
        if digit >= BASE.cast_signed() {
            return Err(malformed.into());
        }
        magnitude += shifted(digit, exponent)?;
        exponent -= i64::from(DIGIT_DECIMALS);
    }
    if word(2) == NEGATIVE {
        magnitude = -magnitude;
    }
    i64::try_from(magnitude).map_err(|_| NumericError::OutOfRange)
}

/// `digit` × 10^`exponent`, a whole number below 10^32.
fn shifted(digit: i128, exponent: i64) -> Result<i128, NumericError> {
    if digit == 0 {
        return Ok(0);
    }
    match u32::try_from(exponent) {
        Ok(exponent) if exponent <= 24 => Ok(digit * 10_i128.pow(exponent)),
        Ok(_) => Err(NumericError::OutOfRange),
        Err(_) => {
            let divisor = match exponent {
                -1 => 10,
                -2 => 100,
                -3 => 1000,
                _ => return Err(NumericError::TooPrecise),
            };
            if digit % divisor == 0 {
                Ok(digit / divisor)
            } else {
                Err(NumericError::TooPrecise)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(value: i64, scale: u32) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, value, scale);
        out
    }

    /// A numeric from its words, as `numeric_send` writes it.
    fn words(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    #[test]
    fn known_values_have_the_bytes_that_the_server_sends() {
        // Taken from `SELECT numeric_send(…)` of PostgreSQL 15.
        for (value, scale, expected) in [
            (0, 2, vec![0, 0, 0, 2]),
            (1, 2, vec![1, 0xffff, 0, 2, 100]),
            (-1, 2, vec![1, 0xffff, 0x4000, 2, 100]),
            (1234, 2, vec![2, 0, 0, 2, 12, 3400]),
            (-1000, 2, vec![1, 0, 0x4000, 2, 10]),
            (30_000_000, 2, vec![1, 1, 0, 2, 30]),
            (
                1_234_567_890_123,
                2,
                vec![4, 2, 0, 2, 123, 4567, 8901, 2300],
            ),
            (5, 4, vec![1, 0xffff, 0, 4, 5]),
            (5, 0, vec![1, 0, 0, 0, 5]),
            (1, 18, vec![1, 0xfffb, 0, 18, 100]),
        ] {
            assert_eq!(encoded(value, scale), words(&expected), "{value} {scale}");
            assert_eq!(
                decode(&words(&expected), scale),
                Ok(value),
                "{value} {scale}"
            );
        }
    }

    #[test]
    fn zeros_beyond_the_scale_do_not_matter_and_other_digits_do() {
        let value = words(&[2, 0, 0, 4, 12, 3400]);
        assert_eq!(decode(&value, 2), Ok(1234));
        assert_eq!(decode(&value, 3), Ok(12_340));
        assert_eq!(decode(&value, 1), Err(NumericError::TooPrecise));
        let tiny = words(&[1, 0xfff0, 0, 60, 1]);
        assert_eq!(decode(&tiny, 2), Err(NumericError::TooPrecise));
    }

    #[test]
    fn values_beyond_an_i64_are_out_of_range() {
        let i64_max = words(&[5, 4, 0, 0, 922, 3372, 368, 5477, 5807]);
        assert_eq!(decode(&i64_max, 0), Ok(i64::MAX));
        assert_eq!(decode(&i64_max, 1), Err(NumericError::OutOfRange));
        let i64_min = words(&[5, 4, 0x4000, 0, 922, 3372, 368, 5477, 5808]);
        assert_eq!(decode(&i64_min, 0), Ok(i64::MIN));
        let huge = words(&[1, 0x7fff, 0, 0, 1]);
        assert_eq!(decode(&huge, 2), Err(NumericError::OutOfRange));
    }

    #[test]
    fn special_values_and_nonsense_are_told_apart() {
        for sign in [NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY] {
            assert_eq!(
                decode(&words(&[0, 0, sign, 0]), 2),
                Err(NumericError::NotFinite)
            );
        }
        let malformed = Err(NumericError::Malformed(Malformed::new("numeric")));
        assert_eq!(decode(&[], 2), malformed);
        assert_eq!(decode(&words(&[2, 0, 0, 0, 1]), 2), malformed);
        assert_eq!(decode(&words(&[0, 0, 0, 0, 1]), 2), malformed);
        assert_eq!(decode(&words(&[1, 0, 0, 0, 10_000]), 2), malformed);
        assert_eq!(decode(&words(&[0, 0, 0x1234, 0]), 2), malformed);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(value: i64, scale in 0..=SCALE_MAX) {
            prop_assert_eq!(decode(&encoded(value, scale), scale), Ok(value));
        }

        #[test]
        fn no_bytes_make_decode_panic(bytes: Vec<u8>, scale in 0_u32..30) {
            let _ = decode(&bytes, scale);
        }
    }
}
