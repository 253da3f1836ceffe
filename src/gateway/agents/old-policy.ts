import * as z from 'zod'
import { ServiceError } from '../records/service-error.ts'

/** Base64 of the JSON of a configuration. */
const Config = z
  .string()
  .max(262_144)
  .nullish()
  .transform((text, context) => {
    if (!text) return {}
    try {
      return JSON.parse(Buffer.from(text, 'base64').toString()) as unknown
    } catch {
      context.addIssue('not JSON in base64')
      return z.NEVER
    }
  })
const Rules = z
  .array(
    z.strictObject({
      Name: z.string().nullish(),
      Expressions: z.array(z.string()).nullish(),
      Actions: z.array(z.strictObject({ Type: z.string(), Config })).nullish(),
    }),
  )
  .nullish()
const Policy = z.strictObject({ Inbound: Rules, Outbound: Rules })

/**
 * The policy of a client from before traffic policies were texts (SDK 1.0 to 1.3), as the text that it
 * means. Throws ServiceError 301.
 */
export function oldPolicyText(value: unknown): string {
  const parsed = Policy.safeParse(value)
  if (parsed.success) {
    const { Inbound, Outbound } = parsed.data
    return JSON.stringify({ inbound: rulesOf(Inbound), outbound: rulesOf(Outbound) })
  }
  const [issue] = parsed.error.issues
  const place = issue?.path.join('.') || 'the policy'
  throw new ServiceError(301, `The option Policy cannot be used: ${place}: ${issue?.message}.`)
}

function rulesOf(rules: z.output<typeof Rules>) {
  return (rules ?? []).map(({ Name, Expressions, Actions }) => ({
    ...(Name ? { name: Name } : {}),
    expressions: Expressions ?? [],
    actions: (Actions ?? []).map((action) => ({ type: action.Type, config: action.Config })),
  }))
}
