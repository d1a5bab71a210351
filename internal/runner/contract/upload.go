// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// The runner starts everynode-upload with the file of the output as its standard input, and an UploadRequest as JSON in EnvUpload. It
// gets an UploadAnswer as JSON from its standard output. They are two programs because an HTTP client is larger than all the rest of
// the runner, and most attempts need none.
const (
	// EnvUpload is the variable with the UploadRequest.
	EnvUpload = "EVERYNODE_UPLOAD"
	// UploadProgram is the name of the program that uploads. It is in the folder of the runner.
	UploadProgram = "everynode-upload"
	// MaxUploadAnswerBytes limits an UploadAnswer as JSON.
	MaxUploadAnswerBytes = 4096
)

// OnceHeader and Once are a header of each PUT request, by which the server refuses to overwrite an object. It is a part of the
// signature for S3.
const (
	OnceHeader = "If-None-Match"
	Once       = "*"
)

// UploadRequest is what to store, and where.
type UploadRequest struct {
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
func (r *UploadRequest) Size() int64 {
	var size int64
	for _, s := range r.Sections {
		size += s.Bytes
	}
	return size
}

// UploadAnswer is what became of the upload.
type UploadAnswer struct {
	Stored bool `json:"stored"`
	// SHA256 is the digest of the content, in hexadecimal; "" if it is not stored.
	SHA256 string `json:"sha256,omitempty"`
	// Error is why the content is not stored, in one line without the URL.
	Error string `json:"error,omitempty"`
}
