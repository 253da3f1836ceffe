import * as z from 'zod'
import { requestOf } from '../exchange/message-head.ts'
import { CONTINUE, refuse } from '../exchange/outcome.ts'
import { requestUrl } from '../exchange/request-view.ts'
import { NO_ERROR } from '../exchange/result-error.ts'
import type { Price } from '../expression/cost/price.ts'
import { WEBHOOK_PROVIDERS } from '../outbound/webhook-signature.ts'
import { defineAction } from './action.ts'

/** A body that is larger cannot be verified. */
const MAX_BODY = 1_048_576
/** Of reading, copying and signing a body. */
const BODY_PRICE: Price = { call: 100, kib: 30 }
const REFUSAL = refuse(403, 'ERR_NGROK_3204', 'The signature of the webhook does not hold.')

/** Lets pass only what a provider of webhooks has signed. */
export const verifyWebhook = defineAction({
  type: 'verify-webhook',
  phases: ['on_http_request'],
  config: z.strictObject({
    provider: z.string().min(1),
    secret: z.string().min(1).max(4_096),
    enforce: z.boolean().default(true),
  }),
  example: { provider: 'github', secret: 'shared secret', enforce: true },
  results: { verified: 'bool', 'error.code': 'string', 'error.message': 'string' },
  build({ provider, secret: text, enforce }, context) {
    const verify = Object.hasOwn(WEBHOOK_PROVIDERS, provider)
      ? WEBHOOK_PROVIDERS[provider]
      : undefined
    if (!verify) {
      const known = Object.keys(WEBHOOK_PROVIDERS).join(', ')
      const message = `${provider} is not available here: use one of ${known}.`
      context.problem('notAvailable', ['provider'], message, { isForeign: true })
    }
    const secret = context.template(text, ['secret'])
    return async (exchange) => {
      const request = requestOf(exchange)
      const body = await request.readBody(MAX_BODY)
      if (body) exchange.account.pay(BODY_PRICE, [body])
      const { headers } = request
      const now = context.clock.now()
      const failure = body
        ? verify?.({
            headers,
            url: requestUrl(request).text,
            body,
            secret: secret.render(exchange),
            now,
          })
        : `The body is larger than ${MAX_BODY} bytes.`
      exchange.results.set('verify_webhook', {
        verified: failure === undefined,
        error: failure === undefined ? NO_ERROR : { code: 'ERR_NGROK_3204', message: failure },
      })
      return failure === undefined || !enforce ? CONTINUE : REFUSAL
    }
  },
})
