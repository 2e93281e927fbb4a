package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/repair-steps/internal/delivery"
)

// Storage is where archives go.
type Storage interface {
	// Take brings the file there, whole or not at all, and returns where it is. To bring it
	// again changes nothing.
	Take(ctx context.Context, file string) (where string, err error)
}

// Open prepares the storage of a configuration.
func Open(ctx context.Context, c StorageConfig, clk clock.PassiveClock, log *slog.Logger) (Storage, error) {
	switch {
	case c.KeepDir != "":
		return folder{c}, nil
	case c.s3():
		return openBucket(ctx, c)
	}
	sender, err := delivery.New(c.Sending, clk, log)
	if err != nil {
		return nil, err
	}
	return web{c.UploadURL, sender}, nil
}

// web is a server that takes PUT requests.
type web struct {
	url    config.Secret
	sender *delivery.Sender
}

// Take puts the file, each time under the same URL.
func (w web) Take(ctx context.Context, file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("uploading the archive: %w", err)
	}
	_, err = w.sender.Send(ctx, delivery.Request{
		Method: http.MethodPut, URL: w.url, Header: http.Header{"Content-Type": {"application/gzip"}},
		Open: func() (io.ReadCloser, error) { return os.Open(file) }, Length: info.Size(), Conflict: delivery.Refused,
	})
	if err != nil {
		return "", fmt.Errorf("uploading the archive: %w", err)
	}
	return shown(w.url), nil
}

// shown is a URL without its query, which may let anyone in; of one that a reference
// names, the reference.
func shown(address config.Secret) string {
	u, err := url.Parse(address.Reveal())
	if err != nil || address.Referenced() {
		return address.String()
	}
	u.RawQuery, u.Fragment, u.User = "", "", nil
	return u.String()
}
