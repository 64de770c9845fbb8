//! Numbers of a fixed width, as far as scripts use them: doubles, the least significant byte first.

use mlua::{Lua, MultiValue, String, Value};

const WIDTH: usize = size_of::<f64>();

fn refused(text: &str) -> mlua::Error {
    mlua::Error::external(format!("ERR {text}"))
}

/// How many numbers a format such as `<dd` has.
fn doubles(format: Option<&Value>) -> mlua::Result<usize> {
    let Some(Value::String(format)) = format else { return Err(refused("a format is missing")) };
    let format = format.as_bytes();
    match format.strip_prefix(b"<") {
        Some(doubles) if doubles.iter().all(|byte| *byte == b'd') => Ok(doubles.len()),
        _ => Err(refused("a format that is not known here")),
    }
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
    for place in 1..=doubles(arguments.front())? {
        packed.extend(number(arguments.get(place))?.to_le_bytes());
    }
    lua.create_string(packed)
}

pub(super) fn unpack(arguments: &MultiValue) -> mlua::Result<MultiValue> {
    let count = doubles(arguments.front())?;
    let Some(Value::String(packed)) = arguments.get(1) else { return Err(refused("bad argument: string expected")) };
    let start = match arguments.get(2) {
        Some(Value::Integer(start)) => usize::try_from(*start - 1).map_err(|_| refused("offset out of range"))?,
        _ => 0,
    };
    let packed = packed.as_bytes();
    let end = start + count * WIDTH;
    let numbers = packed.get(start..end).ok_or_else(|| refused("data string too short"))?;
    let read = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let mut values: MultiValue = numbers.chunks_exact(WIDTH).map(|bytes| Value::Number(read(bytes))).collect();
    values.push_back(Value::Integer(i64::try_from(end + 1).unwrap_or(i64::MAX)));
    Ok(values)
}
