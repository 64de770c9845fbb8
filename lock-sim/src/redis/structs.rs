//! Numbers of a fixed width, as far as scripts use them: doubles, and whole numbers of four bytes, the least significant byte
//! first.

use mlua::{Lua, MultiValue, String, Value};

/// One number in a format string of the Lua library `struct`.
#[derive(Clone, Copy)]
enum Field {
    Double,
    Whole,
}

impl Field {
    const fn width(self) -> usize {
        match self {
            Self::Double => size_of::<f64>(),
            Self::Whole => size_of::<u32>(),
        }
    }

    fn read(self, bytes: &[u8]) -> Value {
        match self {
            Self::Double => Value::Number(f64::from_le_bytes(bytes.try_into().unwrap_or_default())),
            Self::Whole => Value::Number(u32::from_le_bytes(bytes.try_into().unwrap_or_default()).into()),
        }
    }
}

/// A format that a real server knows: an error here would look like a refusal of that server.
fn not_known(format: &[u8]) -> ! {
    panic!("the simulated server does not know this format: {}", format.escape_ascii())
}

fn refused(text: &str) -> mlua::Error {
    mlua::Error::external(format!("ERR {text}"))
}

/// The numbers of a format such as `<I4dd`.
fn fields(format: Option<&Value>) -> mlua::Result<Vec<Field>> {
    let Some(Value::String(format)) = format else { return Err(refused("a format is missing")) };
    let format = format.as_bytes();
    let mut rest = format.strip_prefix(b"<").unwrap_or_else(|| not_known(&format));
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (field, left) = match rest {
            [b'd', left @ ..] => (Field::Double, left),
            [b'I', b'4', left @ ..] => (Field::Whole, left),
            _ => not_known(&format),
        };
        fields.push(field);
        rest = left;
    }
    Ok(fields)
}

fn number(value: Option<&Value>) -> mlua::Result<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "as the server does, whose numbers are doubles")]
        Some(Value::Integer(number)) => Ok(*number as f64),
        Some(Value::Number(number)) => Ok(*number),
        _ => Err(refused("bad argument: number expected")),
    }
}

pub(super) fn pack(lua: &Lua, arguments: &MultiValue) -> mlua::Result<String> {
    let mut packed = Vec::new();
    for (place, field) in fields(arguments.front())?.into_iter().enumerate() {
        let Field::Double = field else { not_known(b"I4 to pack") };
        packed.extend(number(arguments.get(place + 1))?.to_le_bytes());
    }
    lua.create_string(packed)
}

pub(super) fn unpack(arguments: &MultiValue) -> mlua::Result<MultiValue> {
    let fields = fields(arguments.front())?;
    let Some(Value::String(packed)) = arguments.get(1) else { return Err(refused("bad argument: string expected")) };
    let start = match arguments.get(2) {
        Some(Value::Integer(start)) => usize::try_from(*start - 1).map_err(|_| refused("offset out of range"))?,
        _ => 0,
    };
    let packed = packed.as_bytes();
    let mut rest = packed.get(start..).unwrap_or_default();
    let mut values = MultiValue::new();
    for field in fields {
        let (bytes, left) = rest.split_at_checked(field.width()).ok_or_else(|| refused("data string too short"))?;
        values.push_back(field.read(bytes));
        rest = left;
    }
    let next = packed.len() - rest.len() + 1;
    values.push_back(Value::Integer(i64::try_from(next).unwrap_or(i64::MAX)));
    Ok(values)
}
