//! Vectile.
