/// \file
/// Compiles the precompiled headers that the unit tests share; contains nothing itself.
