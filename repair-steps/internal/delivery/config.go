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
	TokenFile config.SecretFile `toml:"tokenFile" flag:"token-file" usage:"File with a bearer token. It is sent over HTTPS only."`
	CAFile    string            `toml:"caFile" flag:"ca-file" usage:"PEM file with the CA certificates that verify the receiver. Empty uses the CA certificates of the system."`
	// TryTimeout bounds one request, SendTimeout all of them.
	TryTimeout  time.Duration `toml:"tryTimeout" bounds:"above 0s" flag:"try-timeout" usage:"Timeout of one request."`
	SendTimeout time.Duration `toml:"sendTimeout" bounds:"above 0s" flag:"send-timeout" usage:"Timeout of the delivery with all retries. The pause between retries grows, or is the one that the receiver requests."`
}

// Validate joins everything that is wrong for sending to the address that flag names. Its
// errors show nothing of the address, which may let anyone in.
func (c Config) Validate(address config.Secret, flag string) error {
	var problems []error
	u, err := url.Parse(address.Reveal())
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		problems = append(problems, fmt.Errorf("%s is not a URL such as https://host/path", flag))
	case u.User != nil:
		problems = append(problems, fmt.Errorf("%s contains a user or a password: use tokenFile (--token-file) instead", flag))
	case !config.Private(u) && (address.Referenced() || u.RawQuery != ""):
		problems = append(problems, fmt.Errorf("%s is a secret because it is a reference or has a query, and it is not https: use https, so that the secret is not sent in plain text", flag))
	case u.Scheme == "http" && c.TokenFile != "":
		problems = append(problems, fmt.Errorf("tokenFile (--token-file) is set and %s is not https: use https, so that the token is not sent in plain text", flag))
	}
	return errors.Join(append(problems, c.Times())...)
}

// Times validates the time limits.
func (c Config) Times() error {
	if c.TryTimeout <= 0 || c.SendTimeout <= 0 {
		return fmt.Errorf("tryTimeout (--try-timeout) is %s and sendTimeout (--send-timeout) is %s: set both to more than 0s", c.TryTimeout, c.SendTimeout)
	}
	return nil
}
