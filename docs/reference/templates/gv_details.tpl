{{- define "gvDetails" -}}
{{- $gv := . -}}
{{ $gv.Doc | trim }}

| Kind | Description |
| --- | --- |
{{ range reverse $gv.SortedKinds -}}
| {{ $gv.TypeForKind . | markdownRenderTypeLink }} | {{ ($gv.TypeForKind .).Doc | markdownRenderFieldDoc }} |
{{ end }}
## Kinds
{{ range reverse $gv.SortedKinds }}{{ template "type" $gv.TypeForKind . }}{{ end }}
## Other types
{{ range $gv.SortedTypes }}{{ if not .GVK }}{{ template "type" . }}{{ end }}{{ end }}
{{- end -}}
