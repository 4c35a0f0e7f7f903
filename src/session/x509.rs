//! The few fields of an X.509 certificate (RFC 5280) that libpq looks at and rustls keeps to
//! itself, read from DER.

/// Tags of ASN.1.
mod tag {
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const OID: u8 = 0x06;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const GENERALIZED_TIME: u8 = 0x18;
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const EXTENSIONS: u8 = 0xa3;
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const DNS_NAME: u8 = 0x82;
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 29, 17];

/// What libpq looks at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Certificate<'a> {
    /// Object identifier of the signature algorithm, as DER has it.
    pub(super) signature_algorithm: &'a [u8],
    pub(super) common_name: Option<&'a str>,
    /// Has it a subject alternative name of type dNSName? Then the common name does not count.
    pub(super) has_dns_name: bool,
    /// Seconds since 1970, first and last.
    pub(super) validity: (i64, i64),
}

impl<'a> Certificate<'a> {
    /// `None` when the bytes are no certificate.
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let mut outer = Der(Der(der).take(tag::SEQUENCE)?);
        let mut fields = Der(outer.take(tag::SEQUENCE)?);
        let signature_algorithm = Der(outer.take(tag::SEQUENCE)?).take(tag::OID)?;
        fields.optional(tag::VERSION);
        fields.take(tag::INTEGER)?;
        fields.take(tag::SEQUENCE)?;
        fields.take(tag::SEQUENCE)?;
        let mut validity = Der(fields.take(tag::SEQUENCE)?);
        let validity = (validity.time()?, validity.time()?);
        let common_name = common_name(fields.take(tag::SEQUENCE)?);
        fields.take(tag::SEQUENCE)?;
        while let Some((tag, body)) = fields.next() {
            if tag == tag::EXTENSIONS {
                return Some(Self {
                    signature_algorithm,
                    common_name,
                    has_dns_name: has_dns_name(body)?,
                    validity,
                });
            }
        }
        Some(Self {
            signature_algorithm,
            common_name,
            has_dns_name: false,
            validity,
        })
    }
}

/// The first common name of a subject.
fn common_name(subject: &[u8]) -> Option<&str> {
    let mut names = Der(subject);
    while let Some(set) = names.take(tag::SET) {
        let mut attribute = Der(Der(set).take(tag::SEQUENCE)?);
        if attribute.take(tag::OID)? == COMMON_NAME {
            return std::str::from_utf8(attribute.next()?.1).ok();
        }
    }
    None
}

fn has_dns_name(extensions: &[u8]) -> Option<bool> {
    let mut extensions = Der(Der(extensions).take(tag::SEQUENCE)?);
    while let Some(extension) = extensions.take(tag::SEQUENCE) {
        let mut extension = Der(extension);
        if extension.take(tag::OID)? != SUBJECT_ALT_NAME {
            continue;
        }
        while let Some((tag, body)) = extension.next() {
            if tag == tag::OCTET_STRING {
                let mut names = Der(Der(body).take(tag::SEQUENCE)?);
                return Some(std::iter::from_fn(|| names.next()).any(|(t, _)| t == tag::DNS_NAME));
            }
        }
    }
    Some(false)
}

/// A cursor over DER elements with definite lengths.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk::<2>()?;
        let mut length = usize::from(first);
        if first & 0x80 != 0 {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if bytes.is_empty() || bytes.len() > 4 {
                return None;
            }
            length = bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            rest = after;
        }
        let (body, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, body))
    }

    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(found, _)| *found == tag)
            .map(|(_, body)| body)
    }

    fn optional(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }

    /// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
    fn time(&mut self) -> Option<i64> {
        let (tag, text) = self.next()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
        let text = match tag {
            // RFC 5280 4.1.2.5.1.
            tag::UTC_TIME if text.as_bytes().first()? < &b'5' => format!("20{text}"),
            tag::UTC_TIME => format!("19{text}"),
            tag::GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
        let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(time.timestamp().as_second())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_certificate_are_found() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "the name");
        params.not_before = rcgen::date_time_ymd(2001, 2, 3);
        params.not_after = rcgen::date_time_ymd(2051, 2, 3);
        let der = params.clone().self_signed(&key).unwrap();
        let found = Certificate::parse(der.der()).unwrap();
        // ecdsa-with-SHA256, RFC 5758.
        assert_eq!(
            found.signature_algorithm,
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]
        );
        assert_eq!(found.common_name, Some("the name"));
        assert!(found.has_dns_name);
        assert_eq!(found.validity, (981_158_400, 2_558_995_200));
        params.subject_alt_names.clear();
        let der = params.self_signed(&key).unwrap();
        assert!(!Certificate::parse(der.der()).unwrap().has_dns_name);
    }

    #[test]
    fn no_truncation_of_a_certificate_makes_it_panic() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        for length in 0..der.len() {
            assert_eq!(Certificate::parse(&der[..length]), None);
        }
    }
}
