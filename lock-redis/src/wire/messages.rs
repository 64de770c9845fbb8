//! A connection on which a server says what is published. The client crate has one that runs a task of its own, which
//! only a tokio runtime can have; this one is driven by whoever reads it.

use std::{collections::VecDeque, io};

use redis::{Cmd, RedisConnectionInfo, RedisError, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Stream;

/// A connection on which a server sends the messages of subscribed channels.
#[derive(Debug)]
pub(crate) struct SubscriptionConnection {
    stream: Box<dyn Stream>,
    /// What has come and is not read yet.
    inbox: Vec<u8>,
    /// What is still to be sent.
    outbox: Vec<u8>,
    /// The requests without a whole answer, in the order of sending.
    pending: VecDeque<PendingRequest>,
}

/// A request on a [`SubscriptionConnection`] that the server has not answered in full.
#[derive(Debug)]
struct PendingRequest {
    /// How many answers are still to come.
    left: usize,
    /// The channels that these confirm.
    channels: Vec<String>,
}

/// What comes on a [`SubscriptionConnection`]: a message, or the last answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionEvent {
    /// Somebody has published this.
    Message { channel: String, payload: Vec<u8> },
    /// A request is answered: these channels are confirmed.
    Answered(Vec<String>),
}

impl SubscriptionConnection {
    /// Signs in.
    pub(crate) async fn open(stream: Box<dyn Stream>, user: &RedisConnectionInfo) -> Result<Self, RedisError> {
        let mut messages = Self { stream, inbox: Vec::new(), outbox: Vec::new(), pending: VecDeque::new() };
        if let Some(password) = user.password() {
            let mut command = redis::cmd("AUTH");
            if let Some(username) = user.username() {
                command.arg(username);
            }
            messages.send(command.arg(password), 1, Vec::new());
            messages.next().await?;
        }
        Ok(messages)
    }

    /// Asks for messages of these channels; answered when all are confirmed.
    pub(crate) fn subscribe(&mut self, channels: Vec<String>) {
        self.send(redis::cmd("SUBSCRIBE").arg(&channels), channels.len(), channels);
    }

    /// Asks for no more messages of these channels.
    pub(crate) fn unsubscribe(&mut self, channels: &[String]) {
        self.send(redis::cmd("UNSUBSCRIBE").arg(channels), channels.len(), Vec::new());
    }

    /// Asks whether the server is there.
    pub(crate) fn ping(&mut self) {
        self.send(&redis::cmd("PING"), 1, Vec::new());
    }

    fn send(&mut self, command: &Cmd, answers: usize, channels: Vec<String>) {
        self.outbox.extend(command.get_packed_command());
        self.pending.push_back(PendingRequest { left: answers, channels });
    }

    /// Sends what is to be sent, and gives what the server says next.
    ///
    /// # Errors
    /// When the connection is over, or the server refuses a request: the connection is of no further use then.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<SubscriptionEvent, RedisError> {
        loop {
            while !self.outbox.is_empty() {
                let written = self.stream.write(&self.outbox).await?;
                self.outbox.drain(..written);
            }
            // A stream with TLS may keep a part of what was written until it is flushed or written to again.
            // Safeguard: a request for messages is sent in full before its answer is waited for (Redis)
            self.stream.flush().await?;
            while let Some(end) = end_of_value(&self.inbox, 0)? {
                let value = redis::parse_redis_value(&self.inbox[..end])?;
                self.inbox.drain(..end);
                if let Some(said) = self.read(value)? {
                    return Ok(said);
                }
            }
            if self.stream.read_buf(&mut self.inbox).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    fn read(&mut self, value: Value) -> Result<Option<SubscriptionEvent>, RedisError> {
        match value {
            Value::ServerError(error) => return Err(error.into()),
            Value::Array(parts) => {
                if let [Value::BulkString(kind), Value::BulkString(channel), Value::BulkString(payload)] = &parts[..]
                    && kind == b"message"
                {
                    let channel = String::from_utf8_lossy(channel).into_owned();
                    return Ok(Some(SubscriptionEvent::Message { channel, payload: payload.clone() }));
                }
            }
            _ => {}
        }
        // Everything else is an answer, and answers come in the order of the requests.
        let Some(first) = self.pending.front_mut() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to nothing").into());
        };
        first.left -= 1;
        if first.left > 0 {
            return Ok(None);
        }
        Ok(self.pending.pop_front().map(|answered| SubscriptionEvent::Answered(answered.channels)))
    }
}

/// Where the value ends that begins at `start`; `None` while not all of it is there.
fn end_of_value(bytes: &[u8], start: usize) -> io::Result<Option<usize>> {
    let Some(rest) = bytes.get(start..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    let Some(line) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "not the protocol of Redis");
    let number = || std::str::from_utf8(&rest[1..line]).ok().and_then(|text| text.parse::<i64>().ok());
    let mut end = start + line + 2;
    match rest[0] {
        b'+' | b'-' | b':' => {}
        b'$' => {
            if let Ok(length) = usize::try_from(number().ok_or_else(nonsense)?) {
                end += length + 2;
            }
        }
        b'*' => {
            for _ in 0..number().ok_or_else(nonsense)? {
                match end_of_value(bytes, end)? {
                    Some(next) => end = next,
                    None => return Ok(None),
                }
            }
        }
        _ => return Err(nonsense()),
    }
    Ok((end <= bytes.len()).then_some(end))
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use lock_core::Clock;
    use tokio::io::{BufStream, DuplexStream, duplex};

    use super::*;
    use crate::wire::Ending;

    /// It keeps what was written until it is flushed.
    impl Stream for BufStream<DuplexStream> {
        fn ending(&self) -> Arc<dyn Ending> {
            unreachable!("nobody ends it")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_a_request_is_sent_before_its_answer_is_waited_for() {
        let (stream, mut server) = duplex(1024);
        let nobody = RedisConnectionInfo::default();
        let mut messages = SubscriptionConnection::open(Box::new(BufStream::new(stream)), &nobody).await.unwrap();
        messages.subscribe(vec!["a".to_owned()]);
        let answering = async {
            let mut request = redis::cmd("SUBSCRIBE").arg("a").get_packed_command();
            server.read_exact(&mut request).await.unwrap();
            server.write_all(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n").await.unwrap();
        };
        let both = async { tokio::join!(messages.next(), answering) };
        let (said, ()) = Clock::runtime().timeout(Duration::from_secs(3600), both).await.expect("the request arrives");
        assert_eq!(said.unwrap(), SubscriptionEvent::Answered(vec!["a".to_owned()]));
    }

    #[test]
    fn a_value_ends_where_all_of_it_is_there() {
        let values: [&[u8]; 6] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b"$-1\r\n",
            b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$0\r\n\r\n",
            b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
            b"*-1\r\n",
        ];
        for value in values {
            for cut in 0..value.len() {
                assert_eq!(end_of_value(&value[..cut], 0).unwrap(), None, "{value:?} up to {cut}");
            }
            let followed = [value, b"+"].concat();
            assert_eq!(end_of_value(&followed, 0).unwrap(), Some(value.len()), "{value:?}");
        }
        assert!(end_of_value(b"HTTP/1.1\r\n", 0).is_err() && end_of_value(b"$x\r\n", 0).is_err());
    }
}
