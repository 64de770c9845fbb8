//! `MessagePack`, as far as scripts use it: a table of texts and whole numbers by their names.

use mlua::{Lua, Table, Value};

pub(super) fn pack(value: &Value) -> mlua::Result<Vec<u8>> {
    let mut packed = Vec::new();
    write(value, &mut packed)?;
    Ok(packed)
}

fn write(value: &Value, into: &mut Vec<u8>) -> mlua::Result<()> {
    match value {
        Value::String(text) => {
            let bytes = text.as_bytes();
            match u16::try_from(bytes.len()) {
                Ok(length) if length < 32 => into.push(0xa0 | u8::try_from(length).unwrap_or(0)),
                Ok(length) => {
                    into.push(0xda);
                    into.extend_from_slice(&length.to_be_bytes());
                }
                Err(_) => return Err(mlua::Error::external("ERR too long a text to be packed here")),
            }
            into.extend_from_slice(&bytes);
            Ok(())
        }
        Value::Integer(number) => {
            into.push(0xd3);
            into.extend_from_slice(&number.to_be_bytes());
            Ok(())
        }
        Value::Number(number) => {
            into.push(0xcb);
            into.extend_from_slice(&number.to_be_bytes());
            Ok(())
        }
        Value::Table(table) => {
            let mut fields: Vec<(Vec<u8>, Value)> = Vec::new();
            for pair in table.pairs::<mlua::String, Value>() {
                let (name, value) = pair?;
                fields.push((name.as_bytes().to_vec(), value));
            }
            // An interpreter has them in an order of its own.
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            into.push(0x80 | u8::try_from(fields.len()).ok().filter(|count| *count < 16).unwrap_or(0));
            for (name, value) in fields {
                into.push(0xa0 | u8::try_from(name.len()).unwrap_or(0));
                into.extend_from_slice(&name);
                write(&value, into)?;
            }
            Ok(())
        }
        _ => Err(mlua::Error::external("ERR nothing that is packed here")),
    }
}

pub(super) fn unpack(lua: &Lua, packed: &[u8]) -> mlua::Result<Value> {
    let mut rest = packed;
    read(lua, &mut rest).unwrap_or_else(|| Err(mlua::Error::external("ERR nothing that was packed here")))
}

fn read(lua: &Lua, rest: &mut &[u8]) -> Option<mlua::Result<Value>> {
    let kind = *take(rest, 1)?.first()?;
    Some(match kind {
        0x80..=0x8f => {
            let table = match lua.create_table() {
                Ok(table) => table,
                Err(error) => return Some(Err(error)),
            };
            for _ in 0..kind & 0x0f {
                let (name, value) = (read(lua, rest)?, read(lua, rest)?);
                if let Err(error) = put(&table, name, value) {
                    return Some(Err(error));
                }
            }
            Ok(Value::Table(table))
        }
        0xa0..=0xbf => text(lua, rest, usize::from(kind & 0x1f))?,
        0xda => {
            let length = u16::from_be_bytes(take(rest, 2)?.try_into().ok()?);
            text(lua, rest, length.into())?
        }
        0xd3 => Ok(Value::Integer(i64::from_be_bytes(take(rest, 8)?.try_into().ok()?))),
        0xcb => Ok(Value::Number(f64::from_be_bytes(take(rest, 8)?.try_into().ok()?))),
        _ => return None,
    })
}

fn put(table: &Table, name: mlua::Result<Value>, value: mlua::Result<Value>) -> mlua::Result<()> {
    table.raw_set(name?, value?)
}

fn text(lua: &Lua, rest: &mut &[u8], length: usize) -> Option<mlua::Result<Value>> {
    let bytes = take(rest, length)?;
    Some(lua.create_string(bytes).map(Value::String))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}
