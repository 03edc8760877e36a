import verifolio
from wine import X, pipeline, y

result = verifolio.robustness(pipeline, X, y, epsilon={"alcohol": 1, "proline": 300}, integers=["proline"])
print(result, *[found.text() for found in result.counterexamples], sep="\n")
result.save("wine-result")
