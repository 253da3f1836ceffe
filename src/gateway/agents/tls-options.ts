import * as z from 'zod'

/** PEM in base64. */
const Pem = z
  .string()
  .max(131_072)
  .transform((text) => Buffer.from(text, 'base64').toString())
const Authority = z.strictObject({ mutual_tls_ca: Pem })
const None = z.literal('').nullish()

/** By their names on the wire; clients call them `mutualTlsca` and `termination`. */
export const TlsOptions = z.object({
  /** Of HTTP endpoints. */
  MutualTLSCA: Authority.nullish(),
  /** The same of TLS ones. */
  MutualTLSAtEdge: Authority.nullish(),
  /** Without certificate and key: with the certificate that the gateway has for the domain. */
  TLSTermination: z
    .strictObject({ cert: Pem.nullish(), key: Pem.nullish(), sealed_key: None })
    .refine(({ cert, key }) => !cert === !key, {
      error: 'certificate and key are given together or not at all',
    })
    .nullish(),
})

/** What they come to: one action; undefined when none of them is asked for. */
export function terminateTls(options: z.output<typeof TlsOptions>) {
  const { MutualTLSCA, MutualTLSAtEdge, TLSTermination } = options
  const authorities = [MutualTLSCA, MutualTLSAtEdge].flatMap((it) => it?.mutual_tls_ca ?? [])
  if (authorities.length === 0 && !TLSTermination) return undefined
  const config = {
    ...(TLSTermination?.cert && {
      server_certificate: TLSTermination.cert,
      server_private_key: TLSTermination.key,
    }),
    ...(authorities.length > 0 && { mutual_tls_certificate_authorities: authorities }),
  }
  return { type: 'terminate-tls', config }
}
