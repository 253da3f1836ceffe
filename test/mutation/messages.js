/** Errors whose first argument is their message; the others begin with a code. */
const MESSAGE_FIRST = ['Error', 'HttpSyntaxError', 'RangeError', 'StartError', 'TypeError']
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal']

/** Fields of problems that hold what people read. */
const SENTENCES = ['detail', 'remedy']

/**
 * The text of `new SomeError(code, '…')` or of `log.warn(facts, '…')`, also one of two texts there, and
 * what a problem tells people. Codes, facts and the choice between the texts are not left alone.
 */
function isMessage(path) {
  const { node, parent, parentPath, listKey, key } = path
  if (node.type !== 'StringLiteral' && node.type !== 'TemplateLiteral') return false
  if (parent.type === 'ObjectProperty' && SENTENCES.includes(parent.key.name))
    return key === 'value'
  if (parent.type === 'ConditionalExpression' && key !== 'test') return isArgument(parentPath)
  return isArgument({ parent, listKey, key })
}

function isArgument({ parent, listKey, key }) {
  if (listKey !== 'arguments') return false
  const { type, callee } = parent
  if (type !== 'NewExpression') return isLogCall(callee)
  if (!callee.name?.endsWith('Error')) return false
  return MESSAGE_FIRST.includes(callee.name) ? key === 0 : key > 0
}

/** `log.warn`, `this.#log.error`, `options.log?.info`, `log[level]`. */
function isLogCall({ object, property, computed }) {
  const owner = object?.property?.id?.name ?? object?.property?.name ?? object?.name
  return owner === 'log' && (computed || LEVELS.includes(property?.name))
}

/** A plugin of the mutation tool: leaves the wording of sentences as it is. */
export const strykerPlugins = [
  {
    kind: 'Ignore',
    name: 'messages',
    value: {
      shouldIgnore: (path) => (isMessage(path) ? 'the wording of a message' : undefined),
    },
  },
]
