package delivery

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
)

// Config is how something is sent.
type Config struct {
	// TokenFile and CAFile are read for every request.
	TokenFile config.SecretFile `toml:"tokenFile" flag:"token-file" usage:"file of a bearer token, for https only"`
	CAFile    string            `toml:"caFile" flag:"ca-file" usage:"file of the authorities of the receiver's certificate, as PEM; empty means the system's"`
	// TryTimeout bounds one request, SendTimeout all of them.
	TryTimeout  time.Duration `toml:"tryTimeout" bounds:"above 0s" flag:"try-timeout" usage:"how long one request may take"`
	SendTimeout time.Duration `toml:"sendTimeout" bounds:"above 0s" flag:"send-timeout" usage:"how long it is tried, with growing pauses or those that the receiver asks for"`
}

// Validate joins everything that is wrong for sending to the address that flag names. Its
// errors show nothing of the address, which may let anyone in.
func (c Config) Validate(address config.Secret, flag string) error {
	var problems []error
	u, err := url.Parse(address.Reveal())
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		problems = append(problems, fmt.Errorf("%s is no URL such as https://host/path", flag))
	case u.User != nil:
		problems = append(problems, fmt.Errorf("%s holds a user or a password; give a token by tokenFile (--token-file)", flag))
	case !config.Private(u) && (address.Referenced() || u.RawQuery != ""):
		problems = append(problems, fmt.Errorf("%s is a reference or has a query, so that it is a secret, and is not https: everyone on the way could read it", flag))
	case u.Scheme == "http" && c.TokenFile != "":
		problems = append(problems, fmt.Errorf("tokenFile (--token-file) is given and %s is not https: everyone on the way could read the token", flag))
	}
	return errors.Join(append(problems, c.Times())...)
}

// Times says what is wrong with the limits of time.
func (c Config) Times() error {
	if c.TryTimeout <= 0 || c.SendTimeout <= 0 {
		return fmt.Errorf("tryTimeout (--try-timeout) is %s and sendTimeout (--send-timeout) %s; both must be more than 0s", c.TryTimeout, c.SendTimeout)
	}
	return nil
}
