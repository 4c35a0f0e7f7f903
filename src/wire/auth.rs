//! The conversation of authentication: what to answer to each request of the server.

use super::backend::Authentication;
use super::frontend;
use postgres_protocol::authentication::{md5_hash, sasl};
use std::fmt;

/// The two SASL mechanisms of PostgreSQL that are spoken here.
const SCRAM: &str = sasl::SCRAM_SHA_256;
const SCRAM_PLUS: &str = sasl::SCRAM_SHA_256_PLUS;

/// libpq's `channel_binding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    Disable,
    #[default]
    Prefer,
    Require,
}

/// A way in which a client proves who it is, as named by libpq's `require_auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// The server asked for nothing.
    None,
    Password,
    Md5,
    ScramSha256,
}

impl Method {
    pub const ALL: [Method; 4] = [
        Method::None,
        Method::Password,
        Method::Md5,
        Method::ScramSha256,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Method::None => "none",
            Method::Password => "password",
            Method::Md5 => "md5",
            Method::ScramSha256 => "scram-sha-256",
        }
    }
}

/// Why authentication cannot go on.
#[derive(Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The server wants a password and none was given.
    PasswordMissing,
    /// Anything else: what is wrong and what to do.
    Refused {
        message: String,
        hint: Option<String>,
    },
}

impl AuthError {
    fn refused(message: impl Into<String>) -> Self {
        AuthError::Refused {
            message: message.into(),
            hint: None,
        }
    }
}

/// Who the client is and what it accepts.
pub struct Credentials<'a> {
    pub user: &'a str,
    pub password: Option<&'a str>,
    pub channel_binding: ChannelBinding,
    /// Is the transport encrypted?
    pub tls: bool,
    /// The hash of the server's certificate, for `tls-server-end-point`.
    pub certificate_hash: Option<&'a [u8]>,
    /// Methods that are allowed (`require_auth`).
    pub methods: &'a [Method],
}

/// One authentication under way.
pub struct Conversation<'a> {
    credentials: Credentials<'a>,
    method: Method,
    scram: Option<sasl::ScramSha256>,
    scram_finished: bool,
    bound: bool,
}

impl fmt::Debug for Conversation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl<'a> Conversation<'a> {
    pub fn new(credentials: Credentials<'a>) -> Self {
        Self {
            credentials,
            method: Method::None,
            scram: None,
            scram_finished: false,
            bound: false,
        }
    }

    /// Answers `request` into `out` (nothing when the server waits for nothing); `true` when the
    /// server has let us in.
    pub fn answer(
        &mut self,
        request: Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, AuthError> {
        match request {
            Authentication::Ok => return self.let_in().map(|()| true),
            Authentication::CleartextPassword => {
                self.begin(Method::Password)?;
                let password = self.password()?;
                frontend::password(out, password.as_bytes());
            }
            Authentication::Md5Password { salt } => {
                self.begin(Method::Md5)?;
                let password = self.password()?;
                let user = self.credentials.user.as_bytes();
                let answer = md5_hash(user, password.as_bytes(), salt);
                frontend::password(out, answer.as_bytes());
            }
            Authentication::Sasl { mechanisms } => {
                self.begin(Method::ScramSha256)?;
                self.scram_begin(mechanisms, out)?;
            }
            Authentication::SaslContinue(data) => {
                let scram = self.scram.as_mut().ok_or_else(out_of_order)?;
                scram.update(data).map_err(|error| scram_failed(&error))?;
                frontend::sasl_response(out, scram.message());
            }
            Authentication::SaslFinal(data) => {
                let scram = self.scram.as_mut().ok_or_else(out_of_order)?;
                scram.finish(data).map_err(|error| scram_failed(&error))?;
                self.scram_finished = true;
            }
            Authentication::Other(code) => return Err(unsupported(code)),
        }
        Ok(false)
    }

    /// The server says that all is well: is it, by our own rules?
    fn let_in(&self) -> Result<(), AuthError> {
        if self.method == Method::ScramSha256 && !self.scram_finished {
            return Err(AuthError::refused(
                "the server ended the SCRAM exchange without proving that it knows the password",
            ));
        }
        if self.method == Method::None {
            self.allowed(Method::None)?;
        }
        if self.credentials.channel_binding == ChannelBinding::Require && !self.bound {
            return Err(AuthError::refused(
                "channel_binding=require, but the server authenticated without channel binding",
            ));
        }
        Ok(())
    }

    fn begin(&mut self, method: Method) -> Result<(), AuthError> {
        self.allowed(method)?;
        if self.credentials.channel_binding == ChannelBinding::Require
            && method != Method::ScramSha256
        {
            return Err(AuthError::refused(format!(
                "channel_binding=require, but the server asks for {} authentication",
                method.name()
            )));
        }
        self.method = method;
        Ok(())
    }

    fn allowed(&self, method: Method) -> Result<(), AuthError> {
        if self.credentials.methods.contains(&method) {
            return Ok(());
        }
        Err(AuthError::refused(format!(
            "the server asks for {} authentication, which require_auth does not allow",
            method.name()
        )))
    }

    fn password(&self) -> Result<&'a str, AuthError> {
        self.credentials
            .password
            .filter(|password| !password.is_empty())
            .ok_or(AuthError::PasswordMissing)
    }

    /// Chooses the mechanism as libpq does (`pg_SASL_init` in fe-auth.c).
    fn scram_begin(&mut self, mechanisms: &[u8], out: &mut Vec<u8>) -> Result<(), AuthError> {
        let offers = |name: &str| mechanisms.split(|b| *b == 0).any(|m| m == name.as_bytes());
        let credentials = &self.credentials;
        let wanted = credentials.channel_binding != ChannelBinding::Disable;
        let hash = credentials.certificate_hash.filter(|_| wanted);
        let (mechanism, binding) = match hash {
            Some(hash) if offers(SCRAM_PLUS) => {
                let binding = sasl::ChannelBinding::tls_server_end_point(hash.to_vec());
                (SCRAM_PLUS, binding)
            }
            _ if !offers(SCRAM) => {
                let offered = mechanisms.split(|b| *b == 0).filter(|m| !m.is_empty());
                let offered: Vec<_> = offered.map(String::from_utf8_lossy).collect();
                return Err(AuthError::refused(format!(
                    "none of the server's SASL mechanisms is supported ({})",
                    offered.join(", ")
                )));
            }
            Some(_) => (SCRAM, sasl::ChannelBinding::unrequested()),
            None => (SCRAM, sasl::ChannelBinding::unsupported()),
        };
        if credentials.channel_binding == ChannelBinding::Require && mechanism != SCRAM_PLUS {
            let why = if credentials.tls {
                "the server does not offer it, or its certificate has no usable signature hash"
            } else {
                "the connection is not encrypted"
            };
            return Err(AuthError::refused(format!(
                "channel binding is required, but {why}"
            )));
        }
        let password = self.password()?;
        let scram = sasl::ScramSha256::new(password.as_bytes(), binding);
        frontend::sasl_initial_response(out, mechanism, scram.message());
        self.bound = mechanism == SCRAM_PLUS;
        self.scram = Some(scram);
        Ok(())
    }
}

fn out_of_order() -> AuthError {
    AuthError::refused("the server sent a SASL message out of order")
}

fn scram_failed(error: &std::io::Error) -> AuthError {
    AuthError::refused(format!("SCRAM authentication failed: {error}"))
}

/// The codes are those of `AuthRequest` in protocol.h.
fn unsupported(code: i32) -> AuthError {
    let name = match code {
        2 => "Kerberos V5",
        6 => "SCM credentials",
        7 | 8 => "GSSAPI",
        9 => "SSPI",
        _ => {
            return AuthError::refused(format!("unknown authentication request {code}"));
        }
    };
    AuthError::Refused {
        message: format!("the server asks for {name} authentication, which is not supported"),
        hint: Some(
            "add a pg_hba.conf line with scram-sha-256, md5, cert or trust for this client"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(password: Option<&'static str>) -> Conversation<'static> {
        Conversation::new(Credentials {
            user: "md5_user",
            password,
            channel_binding: ChannelBinding::Prefer,
            tls: false,
            certificate_hash: None,
            methods: &Method::ALL,
        })
    }

    const SASL: Authentication<'static> = Authentication::Sasl {
        mechanisms: b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
    };

    fn message(error: AuthError) -> String {
        match error {
            AuthError::PasswordMissing => "missing".to_owned(),
            AuthError::Refused { message, .. } => message,
        }
    }

    #[test]
    fn passwords_are_answered_as_the_server_asks() {
        let mut out = Vec::new();
        let md5 = Authentication::Md5Password {
            salt: [0x2a, 0x3d, 0x8f, 0xe0],
        };
        let done = conversation(Some("password")).answer(md5, &mut out);
        assert_eq!(done, Ok(false));
        // The value is that of postgres-protocol's own test.
        assert_eq!(out, b"p\0\0\0\x28md562af4dd09bbb41884907a838a3233294\0");
        out.clear();
        let clear = conversation(Some("pw")).answer(Authentication::CleartextPassword, &mut out);
        assert_eq!(clear, Ok(false));
        assert_eq!(out, b"p\0\0\0\x07pw\0");
        out.clear();
        assert_eq!(
            conversation(None).answer(Authentication::Ok, &mut out),
            Ok(true)
        );
        assert!(out.is_empty());
    }

    #[test]
    fn a_missing_or_empty_password_is_told_apart_from_a_wrong_one() {
        for password in [None, Some("")] {
            for request in [Authentication::CleartextPassword, SASL] {
                let done = conversation(password).answer(request, &mut Vec::new());
                assert_eq!(done, Err(AuthError::PasswordMissing));
            }
        }
    }

    #[test]
    fn scram_begins_without_channel_binding_when_nothing_is_encrypted() {
        let mut out = Vec::new();
        conversation(Some("pw")).answer(SASL, &mut out).unwrap();
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains("SCRAM-SHA-256\0"), "{text}");
        assert!(text.contains("n,,n=,r="), "{text}");
    }

    #[test]
    fn channel_binding_is_used_when_both_sides_can() {
        let offered = b"SCRAM-SHA-256\0\0";
        for (binding, mechanisms, expected) in [
            (ChannelBinding::Prefer, None, "SCRAM-SHA-256-PLUS\0"),
            (ChannelBinding::Require, None, "p=tls-server-end-point,,"),
            (ChannelBinding::Disable, None, "n,,n="),
            // "I could, but think that you cannot": the server notices a man in the middle.
            (ChannelBinding::Prefer, Some(offered), "y,,n="),
        ] {
            let mut conversation = conversation(Some("pw"));
            conversation.credentials.tls = true;
            conversation.credentials.certificate_hash = Some(&[7; 32]);
            conversation.credentials.channel_binding = binding;
            let request = mechanisms.map_or(SASL, |mechanisms| Authentication::Sasl { mechanisms });
            let mut out = Vec::new();
            conversation.answer(request, &mut out).unwrap();
            let text = String::from_utf8_lossy(&out);
            assert!(text.contains(expected), "{binding:?}: {text}");
        }
    }

    #[test]
    fn a_server_that_skips_steps_is_not_believed() {
        let mut conversation = conversation(Some("pw"));
        conversation.answer(SASL, &mut Vec::new()).unwrap();
        let early = conversation.answer(Authentication::Ok, &mut Vec::new());
        assert!(message(early.unwrap_err()).contains("without proving"));
        for request in [
            Authentication::SaslContinue(b"r=x,s=eA==,i=1"),
            Authentication::SaslFinal(b"v=x"),
        ] {
            let done = super::tests::conversation(None).answer(request, &mut Vec::new());
            assert!(message(done.unwrap_err()).contains("out of order"));
        }
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (code, name) in [
            (2, "Kerberos V5"),
            (6, "SCM"),
            (7, "GSSAPI"),
            (9, "SSPI"),
            (99, "99"),
        ] {
            let done = conversation(None).answer(Authentication::Other(code), &mut Vec::new());
            assert!(message(done.unwrap_err()).contains(name), "{code}");
        }
        let oauth = Authentication::Sasl {
            mechanisms: b"OAUTHBEARER\0\0",
        };
        let done = conversation(Some("pw")).answer(oauth, &mut Vec::new());
        assert!(message(done.unwrap_err()).contains("OAUTHBEARER"));
    }
}
