//! A ping-pong of two tasks in one tokio runtime: completions are awaited, not polled.
//!
//! `cargo run -p urxe --features tokio --example async_pingpong [ROUNDS]`

use urxe::{Access, ConnectOptions, Context, CqStream, Mr, Qp, RecvWr, SendWr};

struct End {
    completions: CqStream,
    qp: Qp,
    send: Mr,
    recv: Mr,
}

impl End {
    fn open(addr: &str) -> Result<End, urxe::Error> {
        let context = Context::open(addr.parse().expect("an address"))?;
        let pd = context.alloc_pd()?;
        let completions = CqStream::new(&context, 16)?;
        let qp = pd.qp(completions.cq()).create()?;
        let send = pd.reg_owned(vec![0; 64], Access::NONE)?;
        let recv = pd.reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
        Ok(End {
            completions,
            qp,
            send,
            recv,
        })
    }

    /// Makes ready for one message.
    fn expect(&self) -> Result<(), urxe::Error> {
        self.qp.post_recv(&RecvWr::new(0, &[self.recv.sge(..)]))
    }

    fn send(&self, text: &str) -> Result<(), urxe::Error> {
        self.send.write(0, text.as_bytes());
        self.qp
            .post_send(&SendWr::send(1, &[self.send.sge(..text.len())]))
    }

    async fn receive(&mut self) -> Result<String, urxe::Error> {
        let wc = self.completions.next().await?;
        let mut text = vec![0; wc.ok()?.byte_len as usize];
        self.recv.read(0, &mut text);
        self.expect()?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

async fn ping(mut end: End, rounds: u32) -> Result<End, urxe::Error> {
    for round in 0..rounds {
        end.send(&format!("ping {round}"))?;
        let answer = end.receive().await?;
        println!("{answer}");
    }
    Ok(end)
}

async fn pong(mut end: End, rounds: u32) -> Result<End, urxe::Error> {
    for _ in 0..rounds {
        let question = end.receive().await?;
        end.send(&format!("pong to {question}"))?;
    }
    Ok(end)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), urxe::Error> {
    let rounds = std::env::args().nth(1);
    let rounds = rounds.map_or(5, |text| text.parse().expect("a number of rounds"));
    let (a, b) = (End::open("127.80.1.1")?, End::open("127.80.1.2")?);
    a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default())?;
    b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default())?;
    a.expect()?;
    b.expect()?;
    // Both ends live until both are done: the last message is acknowledged.
    let (a, b) = tokio::join!(ping(a, rounds), pong(b, rounds));
    a.and(b).map(drop)
}
