package main

import (
	"context"
	"fmt"
	"os"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// inBucket is an object of S3.
type inBucket struct {
	StorageConfig
	name, key string
	client    *s3.Client
}

// openBucket finds region, endpoint and credentials as the SDK does: in the environment,
// by the web identity of the service account, in files, or of the instance.
func openBucket(ctx context.Context, c StorageConfig) (Storage, error) {
	name, key, err := bucket(c.UploadURL.Reveal())
	if err != nil {
		return nil, err
	}
	options := []func(*config.LoadOptions) error{config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(c.Sending.TryTimeout))}
	if c.Sending.CAFile != "" {
		f, err := os.Open(c.Sending.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading caFile (--ca-file): %w", err)
		}
		defer f.Close()
		options = append(options, config.WithCustomCABundle(f))
	}
	found, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("finding the S3 configuration: %w", err)
	}
	return inBucket{c, name, key, s3.NewFromConfig(found)}, nil
}

// Take puts the object in one request, which S3 takes whole or not at all; the SDK
// repeats it.
func (i inBucket) Take(ctx context.Context, file string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, i.Sending.SendTimeout)
	defer cancel()
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("uploading the archive: %w", err)
	}
	defer f.Close()
	kind := "application/gzip"
	if _, err := i.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &i.name, Key: &i.key, Body: f, ContentType: &kind}); err != nil {
		return "", fmt.Errorf("uploading the archive to %s: %w", shown(i.UploadURL), err)
	}
	return shown(i.UploadURL), nil
}
