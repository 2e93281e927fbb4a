// Command gpu-reset resets GPUs of the machine it runs on and reports in the kernel log
// what became of each. The janitor runs it as a Job; it exits with 1 if a GPU was not
// reset.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nvidia/nvsentinel/janitor/gputool"
)

func main() {
	names := flag.String("gpus", os.Getenv("NVIDIA_GPU_RESETS"), "UUIDs or PCI bus IDs of the GPUs to reset, separated by commas. Empty resets all. The environment variable NVIDIA_GPU_RESETS sets its default.")
	root := flag.String("driver-root", os.Getenv("DRIVER_ROOT"), "Root directory of the driver installation. Empty is /. The environment variable DRIVER_ROOT sets its default.")
	kernel := flag.String("kernel-log", "/dev/kmsg", "Device or file to which the result is written.")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "gpu-reset resets GPUs of a node and writes the result to the kernel log. It runs in a Job of the janitor.\n\nUsage of gpu-reset:")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, *names, *root, *kernel)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-reset: not every GPU was reset:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, list, root, kernel string) error {
	names, err := gputool.Names(list)
	if err != nil {
		return err
	}
	if root == "" {
		root = "/"
	}
	program, err := gputool.Find(root)
	if err != nil {
		return err
	}
	if _, err := os.Stat(kernel); err != nil {
		return fmt.Errorf("resetting no GPU, because the outcome cannot be reported: %w", err)
	}
	tool := gputool.Tool{
		SMI: gputool.Driver(root, program), Kernel: device(kernel),
		Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	}
	return tool.Reset(ctx, names)
}

// device is opened for each record: the kernel drops, without a word, what is written
// too fast through one opening of /dev/kmsg (printk.devkmsg=ratelimit).
type device string

// Write implements io.Writer.
func (d device) Write(record []byte) (int, error) {
	log, err := os.OpenFile(string(d), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	n, err := log.Write(record)
	return n, errors.Join(err, log.Close())
}
