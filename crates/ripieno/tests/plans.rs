//! Plans of the caller that do not fit the memory of a run.

use crate::common::world;
use ripieno::plans::{Buffer, CheckedPlans, Plan, Span};
use ripieno::{BufferMemory, Element, ElementShape, ElementType, Error};

#[test]
fn elements_of_another_size_than_in_the_plans_are_an_error_before_data_moves() {
    world(2, |comm| {
        let span = Span { buffer: Buffer::MAIN, start_bytes: 0, length_bytes: 8, element_bytes: 4 };
        let plans = [0, 1].map(|rank| {
            let mut plan = Plan::new();
            match rank {
                0 => plan.send(1, span),
                _ => plan.receive(0, span),
            }
            plan
        });
        let plans = CheckedPlans::check(plans.to_vec(), None, &|| false).unwrap().unwrap();
        let mut values = [0; 8];
        let mut run = |element| {
            let elements = ElementType { element, shape: ElementShape::Vector };
            comm.run_plan(&plans, elements, [BufferMemory::Write(&mut values), BufferMemory::Write(&mut [])])
        };
        let Err(Error::Argument { name, expected, .. }) = run(Element::F64) else { panic!("the run began") };
        assert_eq!((name, expected.as_str()), ("elements", "elements of 4 bytes, as in the plans"));
        for element in [Element::F32, Element::F16] {
            run(element).unwrap();
        }
    });
}
