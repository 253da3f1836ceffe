import { expect, it } from 'vitest'
import { AppError } from '../../../src/base/app-error.ts'
import { bindRefusal } from '../../../src/gateway/agents/binder.ts'
import { isPassing } from '../../../src/gateway/agents/rebind.ts'
import { ServiceError } from '../../../src/gateway/records/service-error.ts'

it('a bind whose YAML policy was not read is refused for now: the agent tries again', () => {
  const refusal = bindRefusal(new AppError('policy-not-checked', 'Try again in a moment.'))
  expect(refusal).toBeInstanceOf(ServiceError)
  expect(refusal).toMatchObject({ code: 802, message: 'Try again in a moment.' })
  expect(isPassing(refusal as ServiceError)).toBe(true)
})
