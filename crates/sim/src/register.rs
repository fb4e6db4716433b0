//! The resource behind a lock: it takes a write only with a token that is no older than the newest it has
//! seen.

use protocol::Token;

use crate::segment::ConnId;

/// A write by someone who believed to hold the lock when it was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) lock: usize,
    pub(crate) conn: ConnId,
    pub(crate) token: Token,
}

/// The resource of one lock, with what is needed to judge it: whose the newest grant is, whatever server made
/// it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Register {
    newest_write: Option<(Token, ConnId)>,
    newest_grant: Option<(Token, ConnId)>,
}

impl Register {
    /// A server of the newest life granted the lock.
    pub(crate) fn granted(&mut self, token: Token, conn: ConnId) {
        self.newest_grant = Some((token, conn));
    }

    /// A write arrives. Whether it is taken.
    ///
    /// # Errors
    ///
    /// Two claims wrote with one token, or the newest holder was turned away: tokens do not do what they are
    /// for.
    pub(crate) fn hear(&mut self, write: Write) -> Result<bool, String> {
        let Write { conn, token, .. } = write;
        match self.newest_write {
            Some((newest, writer)) if newest == token && writer != conn => {
                Err(format!("connections {writer} and {conn} both write with token {token}"))
            }
            Some((newest, _)) if token < newest => {
                if self.newest_grant == Some((token, conn)) {
                    return Err(format!(
                        "the newest holder, connection {conn}, is refused for token {newest}"
                    ));
                }
                Ok(false)
            }
            _ => {
                self.newest_write = Some((token, conn));
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(conn: ConnId, token: u64) -> Write {
        Write { lock: 0, conn, token: Token(token) }
    }

    #[test]
    fn an_older_token_is_refused_and_a_token_of_two_claims_is_a_fault() {
        let mut register = Register::default();
        register.granted(Token(1), 1);
        register.granted(Token(2), 2);
        assert_eq!(register.hear(write(1, 1)), Ok(true));
        assert_eq!(register.hear(write(2, 2)), Ok(true));
        assert_eq!(register.hear(write(2, 2)), Ok(true));
        assert_eq!(register.hear(write(1, 1)), Ok(false));
        assert!(register.hear(write(3, 2)).is_err());
    }

    #[test]
    fn a_newest_holder_that_is_refused_is_a_fault() {
        let mut register = Register::default();
        register.granted(Token(9), 1);
        assert_eq!(register.hear(write(1, 9)), Ok(true));
        register.granted(Token(5), 2);
        assert!(register.hear(write(2, 5)).is_err());
    }
}
