//go:build !cgo

package main

func listen() {}
