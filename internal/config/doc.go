// Package config reads a service's configuration: defaults, then one strict
// TOML or YAML file, then the environment, then flags, then validation. An unknown key
// is a start-up error, so that a misspelt limit never silently keeps its default.
//
// A configuration is a struct. A field tagged `flag:"name" usage:"text"`
// becomes a flag that overrides the file. If the struct has the method
// Validate() error it is called last. The tag `alias:"other"` declares further
// names of the same flag; `prefix:"first-"` of a nested struct begins the names
// of its flags. The tag `env:"NAME"` names a variable of the
// environment that overrides the file, and yields to the flag. A key
// or a variable that was removed or is spelled otherwise is an error that names the
// present one (Former).
//
// A field of type Secret takes a text, or a reference that Load replaces by the text it
// names: ${env:NAME} or ${file:/path}. In every other text, whatever it comes from, a
// reference is an error, so that who may write some keys cannot have secrets sent or
// shown; $${env: and $${file: are escapes for the texts themselves.
package config
