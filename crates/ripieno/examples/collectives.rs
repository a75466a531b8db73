//! Measures a collective between processes, without Python, for use with a profiler or a tracer. `ripieno bench`
//! compares the times with other libraries and with theoretical limits.
//!
//!     RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… RIPIENO_TOKEN=… \
//!     collectives [shared-]allreduce|broadcast|allgather|barrier[=ALGORITHM] BYTES:CALLS:BATCHES[:PAUSE_US] …
//!
//! A batch is a barrier followed by CALLS in-place calls, on float32, with sum and root 0. Its time is the time per
//! call on the slowest rank. BYTES of an allgather is the size of all blocks. Rank 0 prints a line "BYTES SECONDS" per
//! batch. Results are checked: broadcasts after each batch, other collectives before the first. With `shared-`, vectors
//! lie in memory that peers can map, as arrays of `rp.empty` do.
//!
//! With PAUSE_US, the last rank starts each call that many microseconds after the others. The messages of the others
//! have arrived by then, so a profiler shows the cost of a call without waiting (see the page on small calls).

use ripieno::net::{Config, Endpoint, Token, exchange::TcpStore, links::Region};
use ripieno::{BufferMemory, Communicator, Element, Op};
use std::env;
use std::error::Error;
use std::ops::DerefMut;
use std::thread::sleep;
use std::time::{Duration, Instant};

type CollectiveResult<T> = Result<T, Box<dyn Error>>;

struct CollectiveCase {
    bytes: usize,
    call_count: usize,
    batch_count: usize,
    pause: Duration,
}

struct Bench {
    comm: Communicator,
    algorithm: Option<String>,
    is_shared: bool,
}

fn main() -> CollectiveResult<()> {
    let mut arguments = env::args().skip(1);
    let operation = arguments.next().ok_or("no operation: expected allreduce, broadcast, allgather or barrier")?;
    let cases =
        arguments.map(|text| CollectiveCase::parse(&text)).collect::<CollectiveResult<Vec<CollectiveCase>>>()?;
    let (operation, algorithm) = match operation.split_once('=') {
        Some((operation, algorithm)) => (operation.to_string(), Some(algorithm.to_string())),
        None => (operation, None),
    };
    let (operation, is_shared) = match operation.strip_prefix("shared-") {
        Some(operation) => (operation.to_string(), true),
        None => (operation, false),
    };
    let mut bench = Bench { comm: connect()?, algorithm, is_shared };
    for case in &cases {
        match operation.as_str() {
            "allreduce" => bench.time_allreduce(case)?,
            "broadcast" => bench.time_broadcast(case)?,
            "allgather" => bench.time_allgather(case)?,
            "barrier" => bench.batches(case, |bench| Ok(bench.comm.barrier(bench.algorithm.as_deref())?))?,
            other => return Err(format!("{other}: expected allreduce, broadcast, allgather or barrier").into()),
        }
    }
    Ok(())
}

/// Connect to the other ranks as the environment variables specify.
fn connect() -> CollectiveResult<Communicator> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let token = Token::from_text("RIPIENO_TOKEN", &variable("RIPIENO_TOKEN")?)?;
    let config = Config::new(variable("RANK")?.parse()?, variable("WORLD_SIZE")?.parse()?, token);
    let mut store = TcpStore::new(&config, &variable("MASTER_ADDR")?, variable("MASTER_PORT")?.parse()?);
    Ok(Communicator::new(Box::new(Endpoint::connect(config, &mut store)?)))
}

impl CollectiveCase {
    fn parse(text: &str) -> CollectiveResult<CollectiveCase> {
        let numbers = text.split(':').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let ([bytes, call_count, batch_count] | [bytes, call_count, batch_count, _]) = numbers[..] else {
            return Err(format!("{text}: expected BYTES:CALLS:BATCHES[:PAUSE_US]").into());
        };
        let pause = Duration::from_micros(numbers.get(3).copied().unwrap_or(0) as u64);
        Ok(CollectiveCase { bytes, call_count, batch_count, pause })
    }
}

impl Bench {
    fn time_allreduce(&mut self, case: &CollectiveCase) -> CollectiveResult<()> {
        let (rank, world_size) = (self.comm.rank(), self.comm.world_size());
        let mut memory = self.memory_of(case, |i| element(rank, i))?;
        let vector = &mut memory[..case.bytes];
        self.allreduce(vector)?;
        let sum = |i| (world_size * (world_size - 1) / 2 + world_size * (i % 7)) as f32;
        if *vector != bytes_of(case, sum)[..] {
            return Err(format!("rank {rank}: wrong sum of {} bytes", case.bytes).into());
        }
        vector.fill(0); // Repeated sums of zeros stay finite.
        self.batches(case, |bench| bench.allreduce(vector))
    }

    fn time_allgather(&mut self, case: &CollectiveCase) -> CollectiveResult<()> {
        let (rank, world_size) = (self.comm.rank(), self.comm.world_size());
        let counts = vec![case.bytes / size_of::<f32>() / world_size; world_size];
        let block_of = |i: usize| i / counts[0].max(1);
        let mut memory = self.memory_of(case, |i| if block_of(i) == rank { element(rank, i) } else { -1.0 })?;
        let vector = &mut memory[..case.bytes];
        self.comm.allgather(vector, Element::F32, &counts, self.algorithm.as_deref())?;
        if *vector != bytes_of(case, |i| element(block_of(i), i))[..] {
            return Err(format!("rank {rank}: wrong blocks of {} bytes", case.bytes).into());
        }
        self.batches(case, |bench| {
            Ok(bench.comm.allgather(vector, Element::F32, &counts, bench.algorithm.as_deref())?)
        })
    }

    fn batches(
        &mut self,
        case: &CollectiveCase,
        mut call: impl FnMut(&mut Bench) -> CollectiveResult<()>,
    ) -> CollectiveResult<()> {
        self.batch(case, &mut call)?;
        for _ in 0..case.batch_count {
            let seconds = self.batch(case, &mut call)?;
            self.report(case, seconds);
        }
        Ok(())
    }

    fn time_broadcast(&mut self, case: &CollectiveCase) -> CollectiveResult<()> {
        let expected = bytes_of(case, |i| element(0, i));
        let mut memory = self.memory_of(case, |i| element(0, i))?;
        let vector = &mut memory[..case.bytes];
        for _ in 0..case.batch_count {
            if self.comm.rank() != 0 {
                vector.fill(0xff);
            }
            let seconds = self.batch(case, |bench| bench.broadcast(vector))?;
            if *vector != expected[..] {
                return Err(format!("rank {}: wrong broadcast of {} bytes", self.comm.rank(), case.bytes).into());
            }
            self.report(case, seconds);
        }
        Ok(())
    }

    /// Return the memory of a vector with these elements.
    fn memory_of(
        &self,
        case: &CollectiveCase,
        element: impl Fn(usize) -> f32,
    ) -> CollectiveResult<Box<dyn DerefMut<Target = [u8]>>> {
        let bytes = bytes_of(case, element);
        if !self.is_shared {
            return Ok(Box::new(bytes));
        }
        let mut region = Region::new(bytes.len())?.ok_or("the process has too many regions")?;
        region[..bytes.len()].copy_from_slice(&bytes);
        Ok(Box::new(region))
    }

    fn allreduce(&mut self, vector: &mut [u8]) -> CollectiveResult<()> {
        Ok(self.comm.allreduce(vector, Element::F32, Op::Sum, self.algorithm.as_deref())?)
    }

    fn broadcast(&mut self, vector: &mut [u8]) -> CollectiveResult<()> {
        Ok(self.comm.broadcast(BufferMemory::Write(vector), Element::F32, 0, self.algorithm.as_deref())?)
    }

    /// Return the seconds per call on the slowest rank.
    fn batch(
        &mut self,
        case: &CollectiveCase,
        mut call: impl FnMut(&mut Bench) -> CollectiveResult<()>,
    ) -> CollectiveResult<f64> {
        let is_last = self.comm.rank() + 1 == self.comm.world_size();
        self.comm.barrier(None)?;
        let start = Instant::now();
        for _ in 0..case.call_count {
            if is_last && !case.pause.is_zero() {
                sleep(case.pause);
            }
            call(self)?;
        }
        let mut seconds = (start.elapsed().as_secs_f64() / case.call_count as f64).to_ne_bytes();
        self.comm.allreduce(&mut seconds, Element::F64, Op::Max, None)?;
        Ok(f64::from_ne_bytes(seconds))
    }

    fn report(&self, case: &CollectiveCase, seconds: f64) {
        if self.comm.rank() == 0 {
            println!("{} {seconds:.9}", case.bytes);
        }
    }
}

fn bytes_of(case: &CollectiveCase, element: impl Fn(usize) -> f32) -> Vec<u8> {
    (0..case.bytes / size_of::<f32>()).flat_map(|i| element(i).to_ne_bytes()).collect()
}

/// Return element `i` of a rank's contribution. The values are small integers, so sums are exact in any order.
fn element(of_rank: usize, i: usize) -> f32 {
    (of_rank + i % 7) as f32
}
