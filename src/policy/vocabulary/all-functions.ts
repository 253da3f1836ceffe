import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import type { ExpressionFunction } from '../expression/expression-function.ts'
import { DIGEST_FUNCTIONS } from './digests.ts'
import { ENCODING_FUNCTIONS } from './encodings.ts'
import { LIST_FUNCTIONS } from './lists.ts'
import { NETWORK_FUNCTIONS } from './network.ts'
import { REQUEST_FUNCTIONS } from './requests.ts'
import { TEXT_FUNCTIONS } from './text.ts'
import { TIME_FUNCTIONS } from './time.ts'

/** Everything that expressions can call beyond the language itself. */
export const FUNCTIONS: readonly ExpressionFunction<PolicyExchange>[] = [
  ...TEXT_FUNCTIONS,
  ...LIST_FUNCTIONS,
  ...TIME_FUNCTIONS,
  ...ENCODING_FUNCTIONS,
  ...DIGEST_FUNCTIONS,
  ...NETWORK_FUNCTIONS,
  ...REQUEST_FUNCTIONS,
]
