// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handoff is the contract between the runner, which has the output of an attempt in a file, and everynode-upload,
// which stores it. They are two programs because an HTTP client is larger than all the rest of the runner, and most
// attempts need none. The package is pure.
//
// The runner gives the file as the standard input of everynode-upload, and a Request as JSON in EnvRequest. It gets an
// Answer as JSON from the standard output.
package handoff

// EnvRequest is the variable with the Request.
const EnvRequest = "EVERYNODE_UPLOAD"

// Program is the name of the program that uploads. It is in the folder of the runner.
const Program = "everynode-upload"

// MaxAnswerBytes limits an Answer as JSON.
const MaxAnswerBytes = 4096

// OnceHeader and Once are a header of each PUT request, by which the server refuses to overwrite an object. It is a part of the
// signature for S3.
const (
	OnceHeader = "If-None-Match"
	Once       = "*"
)

// Request is what to store, and where.
type Request struct {
	// URL takes the content in a PUT request.
	URL string `json:"url"`
	// CA are certificates in PEM format that sign the one of the server; "" for those that Mozilla trusts.
	CA string `json:"ca,omitempty"`
	// Milliseconds limit the upload with all its attempts.
	Milliseconds int64 `json:"milliseconds"`
	// Sections of the file are the content, in this order.
	Sections []Section `json:"sections"`
}

// Section is a part of the file.
type Section struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// Size returns the length of the content in bytes.
func (r *Request) Size() int64 {
	var size int64
	for _, s := range r.Sections {
		size += s.Bytes
	}
	return size
}

// Answer is what became of the upload.
type Answer struct {
	Stored bool `json:"stored"`
	// SHA256 is the digest of the content, in hexadecimal; "" if it is not stored.
	SHA256 string `json:"sha256,omitempty"`
	// Error is why the content is not stored, in one line without the URL.
	Error string `json:"error,omitempty"`
}
