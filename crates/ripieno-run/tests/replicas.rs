//! The law of copies: whichever copy dies at whichever byte, the others end with what nobody's death has changed.

mod common;

use common::{Life, World, worlds};
use ripieno_plan::{Algorithm, Buffer, Collective, Group, Op, Plan, Request, Span};
use ripieno_run::{Call, Copies, Element, Executor, Failure, Header, Memory, RunError, Schedule};
use std::sync::{Arc, Mutex};

const ELEMENT_COUNT: usize = 5;
const ELEMENT_BYTES: usize = 4;

/// More visits than any run of these needs.
const VISITS_MAX: usize = 200_000;

type Values = Vec<i32>;
type Ended = Arc<Mutex<Vec<Result<(), RunError>>>>;

/// What all ranks do, one after the other.
#[derive(Clone, Copy)]
struct Deed {
    collective: Collective,
    algorithm: &'static Algorithm,
}

/// A rank, its run in flight and the memory of it.
struct Player {
    world: World,
    executor: Executor,
    ended: Ended,
    memory: Vec<*mut [u8]>,
    results: Vec<Values>,
    /// It is visited every so manieth time.
    pace: usize,
}

impl Deed {
    fn all(m: usize) -> Vec<Deed> {
        let of = |collective| Algorithm::of(collective).map(move |algorithm| Deed { collective, algorithm });
        let collectives = [Collective::Allreduce, Collective::Broadcast, Collective::Allgather];
        let applies = |deed: &Deed| deed.plan(Group::new(0, m)).is_some();
        collectives.into_iter().flat_map(of).filter(applies).collect()
    }

    /// The plan of a logical rank, if the algorithm is for such groups.
    fn plan(&self, group: Group) -> Option<Plan> {
        let vector = Span::whole(Buffer::MAIN, ELEMENT_COUNT, ELEMENT_BYTES);
        let chunks: Vec<Span> = (0..group.size()).map(|rank| vector.chunk(rank, group.size())).collect();
        let request = match self.collective {
            Collective::Allreduce => Request::Allreduce { vector, op: Op::Sum },
            Collective::Broadcast => Request::Broadcast { root: group.size() - 1, vector },
            _ => Request::Allgather { chunks: &chunks },
        };
        self.algorithm.plan(&group, &request).ok()
    }

    /// Whether every rank needs every other one.
    fn is_symmetric(&self) -> bool {
        self.collective != Collective::Broadcast
    }

    fn given(&self, logical: usize) -> Values {
        (0..ELEMENT_COUNT).map(|index| (1000 * (logical + 1) + index) as i32).collect()
    }

    fn expected(&self, m: usize) -> Values {
        let vector = Span::whole(Buffer::MAIN, ELEMENT_COUNT, ELEMENT_BYTES);
        let owner = |index: usize| {
            (0..m).find(|&rank| vector.chunk(rank, m).end_bytes() > index * ELEMENT_BYTES).expect("chunks cover all")
        };
        let value = |index: usize| match self.collective {
            Collective::Allreduce => (0..m).map(|rank| self.given(rank)[index]).sum(),
            Collective::Broadcast => self.given(m - 1)[index],
            _ => self.given(owner(index))[index],
        };
        (0..ELEMENT_COUNT).map(value).collect()
    }
}

impl Player {
    fn new(world: World, pace: usize) -> Player {
        let (ended, memory, results) = (Ended::default(), vec![], vec![]);
        Player { world, executor: Executor::default(), ended, memory, results, pace }
    }

    /// Begins a run; its memory is given back by [`Player::finish`].
    fn begin(&mut self, deed: Deed, sequence: u64, copies: Copies) {
        let (rank, m) = (self.world.rank, copies.logical_count());
        let logical = copies.logical(rank);
        let plan = deed.plan(Group::new(logical, m)).expect("the algorithm is for such groups");
        let schedule = Arc::new(Schedule::replicated(&plan, copies, rank));
        let main: Vec<u8> = deed.given(logical).iter().flat_map(|value| value.to_ne_bytes()).collect();
        let buffers = [main, vec![], vec![0; schedule.scratch_bytes()]];
        self.memory = buffers.into_iter().map(|buffer| Box::into_raw(buffer.into_boxed_slice())).collect();
        // SAFETY: the memory is good until `finish` or `drop` takes it back, when the run has let it go.
        let lent = self.memory.iter().map(|&memory| Memory::Write(unsafe { &mut *memory })).collect();
        let call = Call {
            collective: deed.collective,
            algorithm: deed.algorithm.index,
            element: Element::I32,
            op: Some(Op::Sum),
            root: 0,
            element_count: ELEMENT_COUNT as u64,
            counts_hash: 0,
        };
        let ended = self.ended.clone();
        let end = Box::new(move |result: Result<_, _>| ended.lock().unwrap().push(result.map(|_| ())));
        let header = Header { communicator: 1, sequence, call };
        self.executor.submit(&mut self.world, header, schedule, lent, end).unwrap();
    }

    /// The end of the run that was begun, if it has come.
    fn finish(&mut self) -> Option<Result<(), RunError>> {
        let ended = self.ended.lock().unwrap().pop()?;
        let mut buffers = self.take_memory();
        let values = buffers.swap_remove(0);
        let value = |bytes: &[u8]| i32::from_ne_bytes(bytes.try_into().unwrap());
        self.results.push(values.chunks_exact(ELEMENT_BYTES).map(value).collect());
        Some(ended)
    }

    fn take_memory(&mut self) -> Vec<Box<[u8]>> {
        // SAFETY: made by `into_raw` of a box, once, and no run has it any more.
        self.memory.drain(..).map(|memory| unsafe { Box::from_raw(memory) }).collect()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // The runs let their memory go first.
        self.executor = Executor::default();
        self.take_memory();
    }
}

/// Plays all `deeds` in a world of `copies` whose victims die when they have sent so many bytes; checks what every rank
/// that lives ends with. Returns how many bytes each rank sent, or how the job failed.
fn play(copies: Copies, deeds: &[Deed], victims: &[(usize, usize)], pace: usize) -> Result<Vec<usize>, Failure> {
    let p = copies.replicas() * copies.logical_count();
    // The copies of a rank are visited unequally often, so that the fastest is another one for different ranks.
    let pace_of = |rank: usize| 1 + (rank * 7 + pace) % 3 * pace;
    let mut players: Vec<Player> = worlds(p, 40, 7).into_iter().map(|world| Player::new(world, 1)).collect();
    let lives: Vec<Life> = players.iter().map(|player| player.world.life.clone()).collect();
    victims.iter().for_each(|&(rank, bytes)| lives[rank].end_after(bytes));
    players.retain(|player| !player.world.life.is_over());
    players.iter_mut().for_each(|player| {
        player.pace = pace_of(player.world.rank);
        player.begin(deeds[0], 0, copies);
    });
    for visit in 0..VISITS_MAX {
        for player in players.iter_mut().filter(|player| visit % player.pace == 0) {
            player.executor.advance(&mut player.world);
            let Some(ended) = player.finish().filter(|_| !player.world.life.is_over()) else { continue };
            if let Err(RunError::Failed(failure)) = ended {
                return Err(failure);
            }
            ended.unwrap();
            if let Some(&next) = deeds.get(player.results.len()) {
                player.begin(next, player.results.len() as u64, copies);
            }
        }
        players.retain(|player| !player.world.life.is_over());
        // What slower copies send to the end is let go, so nothing is in flight at last.
        if players.iter().all(|player| player.results.len() == deeds.len() && player.executor.is_idle()) {
            let expected: Vec<Values> = deeds.iter().map(|deed| deed.expected(copies.logical_count())).collect();
            for player in &players {
                let (rank, results) = (player.world.rank, &player.results);
                assert_eq!(results, &expected, "rank {rank} of {copies:?}, {victims:?}, pace {pace}");
            }
            return Ok(lives.iter().map(|life| usize::MAX - life.left_bytes()).collect());
        }
    }
    panic!("{copies:?} with {victims:?} at pace {pace} comes to no end")
}

#[test]
fn copies_end_with_the_same_values_however_they_race() {
    for (m, s) in [(1, 2), (2, 2), (3, 2), (2, 3), (4, 2), (3, 3)] {
        let deeds: Vec<Deed> = Deed::all(m).into_iter().flat_map(|deed| [deed, deed]).collect();
        for pace in 0..8 {
            play(Copies::new(m * s, s), &deeds, &[], pace).unwrap();
        }
    }
}

#[test]
fn a_copy_may_die_at_every_byte_of_every_algorithm() {
    for m in 2..=3 {
        let copies = Copies::new(2 * m, 2);
        for (number, deed) in Deed::all(m).into_iter().enumerate() {
            let deeds = [deed, deed];
            let sent = play(copies, &deeds, &[], number).unwrap();
            for bytes in 0..*sent.iter().max().unwrap() {
                let victim = (bytes + number) % (2 * m);
                play(copies, &deeds, &[(victim, bytes)], bytes % 5).unwrap();
            }
        }
    }
}

#[test]
fn whichever_copies_die_together_one_of_each_is_enough() {
    let (m, s) = (2, 3);
    let copies = Copies::new(m * s, s);
    for (number, deed) in Deed::all(m).into_iter().enumerate() {
        let sent = play(copies, &[deed, deed], &[], number).unwrap();
        for round in 0..40 {
            // All copies but one of each logical rank, another one each time.
            let is_spared = |rank: usize| rank / m == (round + rank % m * (1 + round / s)) % s;
            let bytes = |rank: usize| (round * 37 + rank * 101 + number * 13) % sent[rank].max(1);
            let victims: Vec<(usize, usize)> =
                (0..m * s).filter(|&rank| !is_spared(rank)).map(|rank| (rank, bytes(rank))).collect();
            assert_eq!(victims.len(), m * (s - 1));
            play(copies, &[deed, deed], &victims, round % 5).unwrap();
        }
    }
}

#[test]
fn the_death_of_the_last_copy_fails_the_run_of_whoever_needs_it() {
    let copies = Copies::new(4, 2);
    for (number, deed) in Deed::all(2).into_iter().enumerate().filter(|(_, deed)| deed.is_symmetric()) {
        for round in 0..20 {
            let victims = [(0, (round * 7 + number) % 40), (2, (round * 3 + number) % 40)];
            let Err(Failure::RankFailed { rank, cause, .. }) = play(copies, &[deed], &victims, round % 5) else {
                panic!("{} ended though both copies of rank 0 sent half a preamble", deed.algorithm.name)
            };
            assert!((rank == 0 || rank == 2) && cause == "the peer has died", "{rank}: {cause}");
        }
    }
}
