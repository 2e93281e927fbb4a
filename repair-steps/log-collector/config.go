package main

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/repair-steps/internal/delivery"
)

// maxKeep is how many archives a folder keeps at most.
const maxKeep = 1000

// StorageConfig is where the archive goes: to one of the two.
type StorageConfig struct {
	// UploadURL is the archive's own.
	UploadURL config.Secret `toml:"uploadURL" flag:"upload-url" env:"UPLOAD_URL" usage:"URL to which the archive is uploaded: https:// or http:// by PUT (also presigned), or s3://bucket/key with the credentials of the AWS SDK. The environment variable UPLOAD_URL sets its default."`
	// KeepDir keeps archives on the node.
	KeepDir string `toml:"keepDir" flag:"keep-dir" usage:"Directory that keeps the archives instead of an upload."`
	Keep    int    `toml:"maxArchives" bounds:"1 to 1000" flag:"max-archives" usage:"Number of archives kept in the directory of --keep-dir. The oldest archives are deleted."`
	Name    string `toml:"name" flag:"name" env:"ARCHIVE_NAME" usage:"Name of the archive in the directory of --keep-dir, for example RUN-STEP. An existing archive of this name is replaced. The environment variable ARCHIVE_NAME sets its default."`

	Sending delivery.Config `toml:"sending"`
}

// DefaultStorage keeps three archives, and uploads for ten minutes at most.
func DefaultStorage() StorageConfig {
	return StorageConfig{Keep: 3, Sending: delivery.Config{TryTimeout: 5 * time.Minute, SendTimeout: 10 * time.Minute}}
}

// names of archives can't leave their folder.
var names = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}$`)

// Validate joins everything that is wrong.
func (s StorageConfig) Validate() error {
	switch {
	case s.UploadURL.IsZero() && s.KeepDir == "":
		return errors.New("uploadURL (--upload-url) and keepDir (--keep-dir) are both empty: set one of them as the destination of the archive")
	case !s.UploadURL.IsZero() && s.KeepDir != "":
		return errors.New("uploadURL (--upload-url) and keepDir (--keep-dir) are mutually exclusive")
	case s.KeepDir != "":
		return s.local()
	case !s.s3():
		return s.Sending.Validate(s.UploadURL, "uploadURL (--upload-url)")
	}
	var problems []error
	if _, _, err := bucket(s.UploadURL.Reveal()); err != nil {
		problems = append(problems, err)
	}
	if s.Sending.TokenFile != "" {
		problems = append(problems, errors.New("tokenFile (--token-file) is set and uploadURL (--upload-url) is s3://, which uses the credentials of the AWS SDK: remove tokenFile"))
	}
	return errors.Join(append(problems, s.Sending.Times())...)
}

func (s StorageConfig) s3() bool { return strings.HasPrefix(s.UploadURL.Reveal(), "s3://") }

func (s StorageConfig) local() error {
	var problems []error
	if s.Keep < 1 || s.Keep > maxKeep {
		problems = append(problems, fmt.Errorf("maxArchives (--max-archives) is %d, it must be from 1 to %d", s.Keep, maxKeep))
	}
	if !names.MatchString(s.Name) {
		problems = append(problems, fmt.Errorf("name (--name) is %q, with keepDir (--keep-dir) it must consist of letters, digits, dots, dashes and underscores", s.Name))
	}
	return errors.Join(problems...)
}

// bucket reads s3://bucket/key.
func bucket(address string) (name, key string, err error) {
	u, err := url.Parse(address)
	if err == nil {
		name, key = u.Host, strings.TrimPrefix(u.Path, "/")
	}
	if err != nil || name == "" || key == "" || u.RawQuery != "" || u.User != nil {
		return "", "", errors.New("uploadURL (--upload-url) is not of the form s3://bucket/key")
	}
	return name, key, nil
}
