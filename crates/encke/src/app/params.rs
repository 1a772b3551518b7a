//! The parameters of a template as a value that hooks take.

use std::fmt;
use std::str::FromStr;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::call::{Calling, FromCall, Need};
use super::reply::Failure;

/// The parameters of the template that a hook has instead of a channel. `{id}` stands for one segment: the value of the only parameter, a
/// tuple of all in their order, or a struct with their names, of any types that serde reads from texts.
///
/// ```
/// use encke::{Access, Data, Failure, Grant, Params, Server};
///
/// #[derive(serde::Deserialize)]
/// struct Seat {
///     room: u32,
///     seat: String,
/// }
///
/// let server = Server::builder()
///     .authorize("/room/{id}", |_: &Access, Params(room): Params<u32>| match room {
///         0..100 => Grant::Grant,
///         _ => Grant::deny("no_such_room"),
///     })
///     .service("/service/room/{room}/take/{seat}", async |Params(Seat { room, seat }): Params<Seat>| {
///         if seat.is_empty() { Err(Failure::new("taken", "somebody sits there")) } else { Ok(Data((room, seat))) }
///     });
/// # drop(server);
/// ```
///
/// A message whose segment is not of the type is refused, with `invalid_parameters` as its reason; the hook does not run, nor does a
/// listener for an event of such a channel. A subscription to a pattern such as `/room/*` leaves the parameter open, and it concerns all its
/// values: only an `Option` can take it, as `None`, so an authorizer that takes a number or a `String` refuses the subscription. Values of a
/// route are as in the path, with its percent signs; the segment `*` is open, too.
///
/// ```
/// use encke::{Access, Grant, Params, Server};
///
/// let server = Server::builder()
///     // Nobody gets the messages of all users.
///     .authorize("/user/{name}", |access: &Access, Params(name): Params<String>| match name == access.user() {
///         true => Grant::Grant,
///         false => Grant::deny("another_user"),
///     })
///     // Administrators get those of all rooms.
///     .authorize("/room/{id}", |access: &Access, Params(id): Params<Option<u32>>| match id {
///         None if access.user() != "admin" => Grant::deny("all_rooms"),
///         _ => Grant::Grant,
///     });
/// # drop(server);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromCall for Params<T> {
    fn from_call(call: &Calling<'_>) -> Result<Params<T>, Failure> {
        let read = T::deserialize(Parameters(call.parameters().collect()));
        read.map(Params).map_err(|error| Failure::new(INVALID_PARAMETERS, &error.0))
    }

    fn needs() -> Option<Need> {
        Some(Need::parameters())
    }
}

/// The class of the failure if the parameters are of other types.
pub(super) const INVALID_PARAMETERS: &str = "invalid_parameters";

/// Reads names and values.
struct Parameters<'a>(Vec<(&'a str, Option<&'a str>)>);

/// Reads one value. None: a pattern leaves it open.
#[derive(Clone, Copy)]
struct Value<'a>(Option<&'a str>);

/// The reason why a value cannot be read.
#[derive(Debug)]
struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

impl serde::de::Error for Unreadable {
    fn custom<M: fmt::Display>(message: M) -> Unreadable {
        Unreadable(message.to_string())
    }
}

impl<'a> Value<'a> {
    fn text(self) -> Result<&'a str, Unreadable> {
        self.0.ok_or_else(|| Unreadable::custom("the pattern leaves a parameter open"))
    }
}

impl<'a> Parameters<'a> {
    fn only(&self) -> Result<Value<'a>, Unreadable> {
        match self.0[..] {
            [(_, value)] => Ok(Value(value)),
            _ => Err(Unreadable::custom(format_args!("{} parameters instead of one", self.0.len()))),
        }
    }

    fn sequence<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        let mut values = SeqDeserializer::new(self.0.iter().map(|(_, value)| Value(*value)));
        let read = visitor.visit_seq(&mut values)?;
        values.end().map(|()| read)
    }

    fn map<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_map(MapDeserializer::new(self.0.iter().map(|(name, value)| (*name, Value(*value)))))
    }
}

/// The methods for types that are read from the only value.
macro_rules! of_one_value {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
                self.only()?.$method(visitor)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Parameters<'_> {
    type Error = Unreadable;

    of_one_value! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.map(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        self.map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.sequence(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Unreadable> {
        self.sequence(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        self.sequence(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_unit()
    }
}

/// The methods for types that `FromStr` reads.
macro_rules! parsed {
    ($($method:ident $visit:ident $Type:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
                let text = self.text()?;
                let read = $Type::from_str(text);
                visitor.$visit(read.map_err(|_| Unreadable(format!("{text:?} is not of the type {}", stringify!($Type))))?)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Unreadable;

    parsed! {
        deserialize_bool visit_bool bool
        deserialize_i8 visit_i8 i8
        deserialize_i16 visit_i16 i16
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_i128 visit_i128 i128
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
        deserialize_u128 visit_u128 u128
        deserialize_f32 visit_f32 f32
        deserialize_f64 visit_f64 f64
        deserialize_char visit_char char
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        match self.0 {
            Some(text) => visitor.visit_str(text),
            // For those that take whatever there is, as a flattened struct does.
            None => visitor.visit_none(),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        match self.0 {
            Some(_) => visitor.visit_some(self),
            None => visitor.visit_none(),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_enum(self.text()?.into_deserializer())
    }

    forward_to_deserialize_any! {
        bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Unreadable> for Value<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::Call;

    fn read<T: DeserializeOwned>(template: &str, channel: &str) -> Result<T, String> {
        let call = Call::new("s", channel, "null").with_template(template);
        Params::from_call(&call.calling()).map(|Params(read)| read).map_err(|failure| failure.data().to_owned())
    }

    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Side {
        Buy,
        Sell,
    }

    #[derive(Deserialize, Debug, PartialEq)]
    struct Number(u32);

    #[derive(Deserialize, Debug, PartialEq)]
    struct Order {
        side: Side,
        number: Number,
        price: Option<f64>,
    }

    #[test]
    fn parameters_are_read_as_one_value_a_tuple_a_struct_or_a_map() {
        assert_eq!(read("/room/{id}", "/room/7"), Ok(7_u8));
        assert_eq!(read("/room/{id}", "/room/7"), Ok("7".to_owned()));
        assert_eq!(read("/room/{id}/**", "/room/7/a/b"), Ok(Number(7)));
        assert_eq!(read("/{side}", "/sell"), Ok(Side::Sell));
        assert_eq!(read("/{a}/x/{b}", "/1/x/two"), Ok((1_i64, "two".to_owned())));
        assert_eq!(read("/{a}/{b}", "/1/2"), Ok(vec![1_u16, 2]));
        let order = Order { side: Side::Buy, number: Number(3), price: Some(1.5) };
        assert_eq!(read("/{number}/{side}/{price}", "/3/buy/1.5"), Ok(order));
        assert_eq!(read("/{side}/{number}", "/buy/3"), Ok(Order { side: Side::Buy, number: Number(3), price: None }));
        let named = BTreeMap::from([("a", "1"), ("b", "x y")].map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(read("/{a}/{b}", "/1/x y"), Ok(named));
    }

    #[test]
    fn values_of_another_type_are_refused_with_the_reason() {
        let refused = |reason: &str| format!(r#"{{"class":"invalid_parameters","message":"{reason}"}}"#);
        assert_eq!(read::<u8>("/room/{id}", "/room/300"), Err(refused(r#"\"300\" is not of the type u8"#)));
        assert_eq!(read::<u8>("/{a}/{b}", "/1/2"), Err(refused("2 parameters instead of one")));
        assert!(read::<(u8, u8)>("/{a}/{b}/{c}", "/1/2/3").is_err() && read::<(u8, u8)>("/{a}", "/1").is_err());
        assert!(read::<Side>("/{side}", "/hold").is_err_and(|reason| reason.contains("unknown variant")));
        assert!(read::<Order>("/{side}", "/buy").is_err_and(|reason| reason.contains("missing field `number`")));
    }

    #[test]
    fn only_an_option_takes_a_parameter_that_a_pattern_leaves_open() {
        let open = Err(r#"{"class":"invalid_parameters","message":"the pattern leaves a parameter open"}"#.to_owned());
        for pattern in ["/user/*", "/user/**", "/**"] {
            assert_eq!(read::<String>("/user/{name}", pattern), open.clone().map(|()| String::new()));
            assert_eq!(read::<u8>("/user/{name}", pattern), open.clone().map(|()| 0));
            assert_eq!(read::<Number>("/user/{name}", pattern), open.clone().map(|()| Number(0)));
            assert_eq!(read::<Side>("/user/{name}", pattern), open.clone().map(|()| Side::Buy));
            assert!(read::<BTreeMap<String, String>>("/user/{name}", pattern).is_err());
            assert!(read::<Box<str>>("/user/{name}", pattern).is_err());
            assert_eq!(read("/user/{name}", pattern), Ok(None::<String>));
        }
        assert_eq!(read("/{a}/{b}", "/1/*"), Ok((1_u8, None::<u8>)));
        assert!(read::<(u8, String)>("/{a}/{b}", "/1/*").is_err() && read::<Vec<String>>("/{a}/{b}", "/1/*").is_err());
        assert_eq!(
            read("/{number}/{side}/{price}", "/3/buy/*"),
            Ok(Order { side: Side::Buy, number: Number(3), price: None })
        );
        assert!(read::<Order>("/{side}/{number}", "/buy/*").is_err());
    }
}
