package provider

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// form is an address of which it is certain which part is the password: its groups are
// the password and the options.
var form = regexp.MustCompile(`^[a-z+]+://` +
	`(?:(?:[^:/?#@\s%]|%[0-9A-Fa-f]{2})*(?::((?:[^:/?#@\s%]|%[0-9A-Fa-f]{2})*))?@)?` +
	`(?:(?:[A-Za-z0-9._-]|%[0-9A-Fa-f]{2})*|\[[0-9A-Fa-f:.%]*\])(?::\d+)?(?:,(?:[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.%]*\])(?::\d+)?)*` +
	`(?:/[^/?#@\s]*)?(?:\?([^?#@\s]*))?$`)

// errForm is all that can be said of another one: any part of it may be of the password.
var errForm = errors.New("the address is not like PROVIDER://user:password@host:port/database?option=value; " +
	"in user and password write %40 for @, %3A for :, %2F for /, %3F for ?, %23 for # and %25 for %")

// Explain is an error about an address without its password and the values of its
// options; paths of files stay.
func Explain(err error, address string) error {
	parts := form.FindStringSubmatch(address)
	if parts == nil {
		return errForm
	}
	text := err.Error()
	if _, reason, found := strings.Cut(text, "`: "); found { // pgx repeats the address before it
		text = reason
	}
	for pair := range strings.SplitSeq(parts[2], "&") {
		name, value, _ := strings.Cut(pair, "=")
		for _, value := range spellings(value) {
			if strings.Contains(strings.ToLower(name), "password") {
				text = strings.ReplaceAll(text, value, "...")
			}
			text = strings.ReplaceAll(text, strconv.Quote(value), `"..."`)
		}
	}
	for _, password := range spellings(parts[1]) {
		if len(password) > 3 { // a shorter one would be shown by its absence
			text = strings.ReplaceAll(text, password, "...")
		}
	}
	return errors.New(text)
}

// spellings are a part as it is written and as it is meant.
func spellings(part string) []string {
	if part == "" {
		return nil
	}
	if plain, err := url.QueryUnescape(part); err == nil {
		return []string{part, plain}
	}
	return []string{part}
}
