//! Frames: the first messages of object transfers, and short arrays inside a frame.
//!
//! A frame has a kind, which the program defines, and either up to [`MAX_CONTENT_BYTES`] bytes or the length of the
//! bytes in a later message.

use ripieno_run::Element;

const FRAME_BYTES: usize = 256;
const WORD_BYTES: usize = 8;

/// Maximum size of the content of a frame.
pub const MAX_CONTENT_BYTES: usize = FRAME_BYTES - 2 * WORD_BYTES;

/// A first message in its wire encoding: kind, length and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct MessageFrame([u8; FRAME_BYTES]);

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The content itself.
    Inline(&'a [u8]),
    /// Size of the content, which follows in another message.
    Separate(u64),
}

impl MessageFrame {
    /// An empty frame to receive into.
    pub const EMPTY: MessageFrame = MessageFrame([0; FRAME_BYTES]);

    /// Create a frame of this kind; `None` if the bytes do not fit.
    pub fn new(kind: u64, content: Content<'_>) -> Option<MessageFrame> {
        let mut frame = MessageFrame::EMPTY;
        let (header, body) = frame.0.split_at_mut(2 * WORD_BYTES);
        let (kind_at, length_at) = header.split_at_mut(WORD_BYTES);
        kind_at.copy_from_slice(&kind.to_le_bytes());
        // The complement of the length marks bytes that follow in another message.
        let length = match content {
            Content::Inline(bytes) => {
                body.get_mut(..bytes.len())?.copy_from_slice(bytes);
                bytes.len() as u64
            }
            Content::Separate(length) => !length,
        };
        length_at.copy_from_slice(&length.to_le_bytes());
        Some(frame)
    }

    /// Return the kind of the frame, and its content.
    pub fn read(&self) -> (u64, Content<'_>) {
        let (header, body) = self.0.split_at(2 * WORD_BYTES);
        let (kind, length) = header.split_at(WORD_BYTES);
        let length = word(length);
        let inline = usize::try_from(length).ok().and_then(|length| body.get(..length));
        (word(kind), inline.map_or(Content::Separate(!length), Content::Inline))
    }

    /// Return the wire encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Return the wire encoding of several consecutive frames.
    pub fn bytes_of_mut(frames: &mut [MessageFrame]) -> &mut [u8] {
        // SAFETY: a frame consists of its bytes only, and every byte sequence is a valid frame.
        unsafe { std::slice::from_raw_parts_mut(frames.as_mut_ptr().cast(), size_of_val(frames)) }
    }
}

/// An array that fits in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortArray<'a> {
    /// The type of its elements.
    pub element: Element,
    /// Number of entries along each axis.
    pub shape: Vec<usize>,
    /// Its elements in row-major order.
    pub data: &'a [u8],
}

impl<'a> ShortArray<'a> {
    /// Encode an array; `None` if it does not fit in a frame.
    pub fn encode(element: Element, shape: &[usize], data: &[u8]) -> Option<Vec<u8>> {
        let fits = WORD_BYTES * (1 + shape.len()) + data.len() <= MAX_CONTENT_BYTES;
        if !fits {
            return None;
        }
        let mut bytes = vec![element as u8, shape.len() as u8];
        bytes.resize(WORD_BYTES, 0);
        bytes.extend(shape.iter().flat_map(|&axis| (axis as u64).to_le_bytes()));
        bytes.extend_from_slice(data);
        Some(bytes)
    }

    /// Decode an array; `None` if the bytes are invalid.
    pub fn decode(bytes: &'a [u8]) -> Option<ShortArray<'a>> {
        let (head, rest) = bytes.split_at_checked(WORD_BYTES)?;
        let element = *Element::ALL.get(usize::from(head[0]))?;
        let (axes, data) = rest.split_at_checked(WORD_BYTES * usize::from(head[1]))?;
        let axes = axes.chunks_exact(WORD_BYTES).map(|axis| usize::try_from(word(axis)).ok());
        let shape = axes.collect::<Option<Vec<usize>>>()?;
        let length = shape.iter().try_fold(element.size_bytes(), |length, &axis| length.checked_mul(axis))?;
        (length == data.len()).then_some(ShortArray { element, shape, data })
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a word has eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_a_frame_round_trips() {
        let bytes: Vec<u8> = (0..=255).cycle().take(MAX_CONTENT_BYTES + 1).collect();
        for kind in [0, 7, u64::MAX] {
            let inline = [0, 1, MAX_CONTENT_BYTES].map(|length| Content::Inline(&bytes[..length]));
            for content in inline.into_iter().chain([0, 1, 1 << 40].map(Content::Separate)) {
                let mut frames = [MessageFrame::EMPTY; 2];
                let frame = MessageFrame::new(kind, content).expect("the content fits");
                MessageFrame::bytes_of_mut(&mut frames)[FRAME_BYTES..].copy_from_slice(frame.as_bytes());
                assert_eq!(frames[1].read(), (kind, content));
                assert_eq!(frames[0], MessageFrame::EMPTY);
            }
        }
        assert_eq!(MessageFrame::new(0, Content::Inline(&bytes)), None);
    }

    #[test]
    fn a_frame_with_an_invalid_length_has_no_inline_content() {
        for length in [MAX_CONTENT_BYTES as u64 + 1, u64::MAX / 2, u64::MAX] {
            let mut frame = MessageFrame::new(0, Content::Inline(&[1, 2])).expect("the content fits");
            frame.0[WORD_BYTES..2 * WORD_BYTES].copy_from_slice(&length.to_le_bytes());
            assert_eq!(frame.read(), (0, Content::Separate(!length)));
        }
    }

    #[test]
    fn arrays_of_every_type_round_trip_up_to_the_maximum_size() {
        for element in Element::ALL {
            for shape in [&[][..], &[0], &[3], &[2, 0, 5], &[2, 3]] {
                let data = vec![7; shape.iter().product::<usize>() * element.size_bytes()];
                let bytes = ShortArray::encode(element, shape, &data).expect("the content fits");
                let array = ShortArray { element, shape: shape.to_vec(), data: &data };
                assert_eq!(ShortArray::decode(&bytes), Some(array));
            }
        }
        let max = MAX_CONTENT_BYTES - 2 * WORD_BYTES;
        assert!(ShortArray::encode(Element::U8, &[max], &vec![0; max]).is_some());
        assert!(ShortArray::encode(Element::U8, &[max + 1], &vec![0; max + 1]).is_none());
        assert!(ShortArray::encode(Element::U8, &[0; 30], &[]).is_none());
    }

    #[test]
    fn damaged_arrays_are_rejected() {
        let bytes = ShortArray::encode(Element::I16, &[2, 3], &[7; 12]).expect("the content fits");
        (0..bytes.len()).for_each(|length| assert_eq!(ShortArray::decode(&bytes[..length]), None, "{length} bytes"));
        for (at, byte) in [(0, 12), (1, 1), (1, 255), (8, 1), (8, 3), (15, 255), (16, 0), (23, 128)] {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            assert_eq!(ShortArray::decode(&damaged), None, "{byte} at {at}");
        }
    }
}
