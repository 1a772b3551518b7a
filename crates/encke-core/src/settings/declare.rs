//! The declaration of settings: the struct, its defaults, and the list of what is known of each, all from one text.

use std::any::Any;

/// A declared setting. Its name says its unit: `_ms`, `_s`, `_us`, `_bytes`, `_bytes_max`; other numbers are counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name in a file and in the struct.
    pub name: &'static str,
    /// CometD's name for it, if CometD has it.
    pub cometd: Option<&'static str>,
    /// CometD has a value for each of its transports (`ws.timeout`), and this is one for all.
    pub is_widened: bool,
    /// A change needs a restart. Without it, a reload takes the new value.
    pub needs_restart: bool,
    doc: &'static str,
    least: (u64, &'static str),
    most: (u64, &'static str),
}

/// Settings that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its title in the documentation.
    pub title: &'static str,
    /// Its settings, in the order in which they are shown.
    pub settings: &'static [Setting],
}

impl Setting {
    /// A setting of any value. Times have a limit, because a longer one could overflow when it is added to the time of day.
    pub const fn new(name: &'static str, doc: &'static str) -> Setting {
        let (least, most) = ((0, ""), if is_time(name) { TIME_CAP } else { (u64::MAX, "") });
        Setting { name, cometd: None, is_widened: false, needs_restart: false, doc, least, most }
    }

    /// CometD has it, too, under this name.
    pub const fn cometd(self, name: &'static str) -> Setting {
        Setting { cometd: Some(name), ..self }
    }

    /// CometD has it, too, under this name, and for each of its transports.
    pub const fn cometd_of_each_transport(self, name: &'static str) -> Setting {
        Setting { cometd: Some(name), is_widened: true, ..self }
    }

    /// A change needs a restart.
    pub const fn restart(self) -> Setting {
        Setting { needs_restart: true, ..self }
    }

    /// It is not 0.
    pub const fn positive(self) -> Setting {
        self.at_least(1, "a number above 0")
    }

    /// Its least value, and the text that says so.
    pub const fn at_least(self, least: u64, wanted: &'static str) -> Setting {
        Setting { least: (least, wanted), ..self }
    }

    /// Its largest value, and the text that says so.
    pub const fn at_most(self, most: u64, wanted: &'static str) -> Setting {
        Setting { most: (most, wanted), ..self }
    }

    /// Its description in Markdown, in one line.
    pub fn doc(&self) -> &'static str {
        self.doc.trim_start()
    }

    /// The description of valid numbers, if this one is out of its range.
    pub(crate) fn refusal(&self, number: u64) -> Option<&'static str> {
        let ((least, above), (most, below)) = (self.least, self.most);
        let wanted = if number < least { above } else { below };
        (!(least..=most).contains(&number)).then_some(wanted)
    }

    /// A number out of its range, with the description of valid ones. Other values have no range.
    fn out_of_range(&self, value: &dyn Any) -> Option<(u64, &'static str)> {
        let number = number(value)?;
        Some((number, self.refusal(number)?))
    }
}

/// Settings that [`settings!`](crate::settings!) has declared.
pub trait Declared {
    /// All that is known of each setting, in groups.
    const DECLARED: &'static [Group];

    /// The values in the order of their declarations.
    fn values(&self) -> Vec<&dyn Any>;

    /// Takes the settings that need a restart from those in force. Returns the names of those that would have changed.
    fn keep_fixed(&mut self, in_force: &Self) -> Vec<&'static str>;

    /// The setting with this name.
    fn declared(name: &str) -> Option<&'static Setting> {
        Self::DECLARED.iter().flat_map(|group| group.settings).find(|setting| setting.name == name)
    }

    /// The numbers that are out of their ranges: for each its setting, its value, and a description of valid values.
    fn out_of_range(&self) -> Vec<(&'static Setting, u64, &'static str)> {
        let declared = Self::DECLARED.iter().flat_map(|group| group.settings);
        let wrong = declared.zip(self.values()).filter_map(|(setting, value)| {
            let (number, wanted) = setting.out_of_range(value)?;
            Some((setting, number, wanted))
        });
        wrong.collect()
    }
}

/// The value of a setting that cannot be negative, if it is a number.
fn number(value: &dyn Any) -> Option<u64> {
    let of_size = || value.downcast_ref::<usize>().map(|number| *number as u64);
    let of_status = || value.downcast_ref::<u16>().map(|number| u64::from(*number));
    value.downcast_ref::<u64>().copied().or_else(of_size).or_else(of_status)
}

/// True for a name that ends with the unit of milliseconds.
const fn is_time(name: &str) -> bool {
    matches!(name.as_bytes(), [.., b'_', b'm', b's'])
}

/// The longest time.
const TIME_CAP: (u64, &str) = (1_000_000_000_000, "at most 1000000000000, which is 31 years");

/// Declares settings. Each has its documentation, its name, type and default, and all else that is known of it: methods of
/// [`Setting`](crate::Setting) with their arguments. The settings are in groups with titles.
///
/// ```
/// use encke_core::Declared as _;
///
/// encke_core::settings! {
///     /// The settings of a shop.
///     #[derive(Clone, Debug)]
///     pub struct ShopSettings;
///
///     "Orders" {
///         /// Orders of one day.
///         orders_max: usize = 100, positive();
///         /// The city of the shop.
///         city: String = "Bremen".into(), restart();
///     }
/// }
///
/// let shop = ShopSettings::default();
/// assert_eq!(ShopSettings::DECLARED[0].settings[0].doc(), "Orders of one day.");
/// let mut other = ShopSettings { orders_max: 0, city: "Ulm".into() };
/// let (setting, value, wanted) = other.out_of_range()[0];
/// assert_eq!((setting.name, value, wanted), ("orders_max", 0, "a number above 0"));
/// assert_eq!(other.keep_fixed(&shop), ["city"]);
/// assert_eq!((other.orders_max, other.city.as_str()), (0, "Bremen"));
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])* $visibility:vis struct $Struct:ident;
        $($title:literal {
            $($(#[doc = $doc:literal])* $name:ident: $type:ty = $default:expr $(, $known:ident($($argument:expr),*))*;)*
        })*
    ) => {
        $(#[$attribute])*
        $visibility struct $Struct {
            $($($(#[doc = $doc])* $visibility $name: $type,)*)*
        }

        impl Default for $Struct {
            fn default() -> Self {
                $Struct { $($($name: $default,)*)* }
            }
        }

        impl $crate::Declared for $Struct {
            const DECLARED: &'static [$crate::Group] = &[$($crate::Group {
                title: $title,
                settings: &[$($crate::Setting::new(stringify!($name), concat!($($doc),*))$(.$known($($argument),*))*),*],
            }),*];

            fn values(&self) -> Vec<&dyn std::any::Any> {
                vec![$($(&self.$name,)*)*]
            }

            fn keep_fixed(&mut self, in_force: &Self) -> Vec<&'static str> {
                let mut fixed = Vec::new();
                $($(
                    let needs_restart = const { $crate::Setting::new("", "")$(.$known($($argument),*))*.needs_restart };
                    if needs_restart && self.$name != in_force.$name {
                        self.$name.clone_from(&in_force.$name);
                        fixed.push(stringify!($name));
                    }
                )*)*
                fixed
            }
        }
    };
}
