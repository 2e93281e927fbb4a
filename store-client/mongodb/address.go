package mongodb

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// maxPoolSize bounds the connections of a process to each server, where the
// address does not: every node of a cluster has a process that connects.
const maxPoolSize = 20

// parse reads the address. Errors of the driver may repeat it, so they are explained.
func parse(dsn string) (*options.ClientOptions, string, error) {
	journal := true
	conf := options.Client().ApplyURI(dsn).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal}).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetRegistry(registry()).
		SetBSONOptions(&options.BSONOptions{UseJSONStructTags: true})
	if conf.AppName == nil {
		conf.SetAppName("nvsentinel")
	}
	if conf.ServerSelectionTimeout == nil {
		conf.SetServerSelectionTimeout(10 * time.Second)
	}
	if conf.MaxPoolSize == nil {
		conf.SetMaxPoolSize(maxPoolSize)
	}
	if err := conf.Validate(); err != nil {
		return nil, "", fmt.Errorf("%w: the address is not valid: %w", provider.ErrUnusable, provider.Explain(err, dsn))
	}
	if err := checkOptions(dsn); err != nil {
		return nil, "", fmt.Errorf("%w: %w", provider.ErrUnusable, err)
	}
	return conf, databaseOf(dsn), nil
}

// clearText reports whether records would cross a network without TLS.
func clearText(conf *options.ClientOptions) bool {
	return conf.TLSConfig == nil && slices.ContainsFunc(conf.Hosts, func(host string) bool {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		return provider.OnNetwork(strings.ToLower(strings.TrimSuffix(host, ".")))
	})
}

// checkOptions finds options that the driver would pass over: a misspelt tlsCAFile
// must not weaken a connection silently.
func checkOptions(dsn string) error {
	_, query, _ := strings.Cut(dsn, "?")
	if query == "" {
		return nil
	}
	// Without its hosts, which may have to be looked up, and its credentials.
	pairs := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool { return strings.HasPrefix(pair, "srv") })
	options, err := connstring.Parse("mongodb://host/?" + strings.Join(pairs, "&"))
	if err != nil {
		return fmt.Errorf("the address's options are not valid: %w", provider.Explain(err, dsn))
	}
	for name := range options.UnknownOptions {
		return provider.Explain(fmt.Errorf("the address has an unknown option %q, use options of MongoDB connection strings", name), dsn)
	}
	return nil
}

// databaseOf is the database that an address names, which may have several
// hosts and so be no URL.
func databaseOf(dsn string) string {
	_, rest, _ := strings.Cut(dsn, "://")
	rest, _, _ = strings.Cut(rest, "?")
	_, name, _ := strings.Cut(rest, "/")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return cmp.Or(name, DefaultDatabase)
}

// Check validates an address, without connecting. Of an address with +srv only the options
// are read: its hosts have to be looked up.
func Check(dsn string) error {
	var err error
	if strings.HasPrefix(dsn, "mongodb+srv://") {
		err = checkOptions(dsn)
	} else {
		_, _, err = parse(dsn)
	}
	return err
}
