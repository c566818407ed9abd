/// \file
/// The home of the precompiled headers that the unit tests share; nothing of its own.
