package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// serve prints the address of a registry that knows referrers, and runs it until ctx ends.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	address := flags.String("address", "127.0.0.1:0", "`Address` to listen on. Port 0 takes any free one.")
	dir := flags.String("dir", "", "`Folder` for the content. Manifests stay in memory.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return fmt.Errorf("%w: serve needs --dir and takes no other argument", errArguments)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", *address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", *address, err)
	}
	server := &http.Server{
		Handler: registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(*dir)),
			registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: time.Minute,
	}
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Fprintln(stdout, listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the registry: %w", err)
	}
	return nil
}
